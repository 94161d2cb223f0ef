"""The audit log, mounted at /audit/, and the credentials, mounted at /credentials/."""

from django.urls import path

from servers.views import audit, credentials, issuer

app_name = "audit"
urlpatterns = [
    path("", audit.index, name="list"),
    path("verify/", audit.verify_newest, name="verify"),
    path("<int:seq>/", audit.detail, name="detail"),
]

credential_patterns = [
    path("", credentials.board, name="list"),
    path("add/", credentials.add, name="add"),
    path("<uuid:uid>/", credentials.detail, name="detail"),
    path("<uuid:uid>/replace/", credentials.replace, name="replace"),
    path("<uuid:uid>/delete/", credentials.delete, name="delete"),
    path("for/<slug:slug>/", credentials.attach, name="attach"),
    path("for/<slug:slug>/<uuid:uid>/remove/", credentials.detach, name="detach"),
    path("for/<slug:slug>/issuer/", issuer.expect, name="issuer"),
]
