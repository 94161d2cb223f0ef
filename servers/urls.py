"""The audit log. Mounted at /audit/."""

from django.urls import path

from servers.views import audit

app_name = "audit"
urlpatterns = [
    path("", audit.index, name="list"),
    path("verify/", audit.verify_newest, name="verify"),
    path("<int:seq>/", audit.detail, name="detail"),
]
