from django.urls import include, path
from django.views.generic import RedirectView

from mcpadmin import accounts, health, setup
from servers.urls import (
    credential_patterns,
    discovery_patterns,
    export_patterns,
    job_patterns,
    link_patterns,
    oauth_patterns,
    privacy_patterns,
    report_patterns,
    user_patterns,
)
from servers.views.instance import release
from sessions.api.mount import api

handler400 = "mcpadmin.errors.bad_request"
handler403 = "servers.views.denied.permission_denied"
handler404 = "mcpadmin.errors.page_not_found"
handler429 = "mcpadmin.accounts.too_many_requests"

_MAILING = ("password/reset", "confirm-email")

urlpatterns = [
    path("instance/release/", release, name="release_instance"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path(f"{setup.PATH}<str:token>/", setup.first_administrator, name="setup"),
    # Passwords are reset by a link from an administrator: the pages of allauth that mail one are not reachable.
    *(
        path(f"accounts/{page}/{rest}", accounts.forgotten_password)
        for page in _MAILING
        for rest in ("", "<path:rest>")
    ),
    path("accounts/email/", accounts.forgotten_password),
    path("accounts/login/", accounts.SignIn.as_view(), name="account_login"),
    path("accounts/session/", accounts.browser_session, name="browser_session"),
    path("accounts/signed-in/", accounts.signed_in, name="signed_in"),
    path("accounts/sessions/", RedirectView.as_view(pattern_name="own:account")),  # allauth's own list of them
    path("accounts/", include("allauth.urls")),
    path("audit/", include("servers.urls")),
    path("credentials/", include((credential_patterns, "credentials"))),
    path("jobs/", include((job_patterns, "jobs"))),
    path("privacy/", include((privacy_patterns, "privacy"))),
    path("exports/", include((export_patterns, "exports"))),
    path("users/", include((user_patterns, "users"))),
    path("browser-reports/", include((report_patterns, "browser_reports"))),
    path("link/", include(link_patterns)),
    path("oauth/", include((oauth_patterns, "oauth"))),
    path(".well-known/", include(discovery_patterns)),
    path("api/<path:rest>", api),
    path("", include("sessions.urls")),
]
