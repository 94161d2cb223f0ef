from django.urls import include, path

from mcpadmin import accounts, health, setup
from servers.urls import credential_patterns

handler403 = "servers.views.denied.permission_denied"

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("setup/<str:token>/", setup.first_administrator, name="setup"),
    # No mail is sent: the pages of allauth that would are not reachable.
    path("accounts/password/reset/", accounts.forgotten_password),
    path("accounts/email/", accounts.forgotten_password),
    path("accounts/", include("allauth.urls")),
    path("audit/", include("servers.urls")),
    path("credentials/", include((credential_patterns, "credentials"))),
    path("", include("sessions.urls")),
]
