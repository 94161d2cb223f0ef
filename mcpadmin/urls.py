from django.urls import include, path

from mcpadmin import health, setup

handler403 = "servers.views.denied.permission_denied"

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("setup/<str:token>/", setup.first_administrator, name="setup"),
    path("accounts/", include("allauth.urls")),
    path("audit/", include("servers.urls")),
    path("", include("sessions.urls")),
]
