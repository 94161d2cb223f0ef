"""The audit log, mounted at /audit/, the credentials, at /credentials/, and the background jobs, at /jobs/."""

from django.urls import path

from servers.views import audit, credentials, issuer, jobs, references

app_name = "audit"
urlpatterns = [
    path("", audit.index, name="list"),
    path("verify/", audit.verify_all, name="verify"),
    path("<int:seq>/", audit.detail, name="detail"),
]

credential_patterns = [
    path("", credentials.board, name="list"),
    path("add/", credentials.add, name="add"),
    path("references/", references.index, name="references"),
    path("references/<uuid:uid>/revoke/", references.revoke, name="revoke_reference"),
    path("<uuid:uid>/", credentials.detail, name="detail"),
    path("<uuid:uid>/replace/", credentials.replace, name="replace"),
    path("<uuid:uid>/delete/", credentials.delete, name="delete"),
    path("for/<slug:slug>/", credentials.attach, name="attach"),
    path("for/<slug:slug>/<uuid:uid>/remove/", credentials.detach, name="detach"),
    path("for/<slug:slug>/issuer/", issuer.expect, name="issuer"),
]

job_patterns = [
    path("", jobs.index, name="list"),
    path("rotate-keys/", jobs.rotate_keys, name="rotate_keys"),
]
