"""Which clients may register themselves: an administrator switches both ways on and off.

Dynamic client registration (RFC 7591) is off by default: anyone who can reach this address may register, and a
registered name proves nothing. Metadata documents are on by default; if workers cannot reach their hosts, they have to
be off, because clients that see documents advertised try nothing else.
"""

import secrets
from typing import Any, Final

from servers import instance, permissions
from servers.agents import tokens
from servers.agents.oauth import clients
from servers.agents.oauth.clients import MOST_CLIENTS, BadClient
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.enums import AuditAction, OAuthClientKind
from servers.models import Instance, OAuthClient

_PUBLIC: Final = "none"
_METHODS: Final = (_PUBLIC, "client_secret_basic", "client_secret_post")


def is_open() -> bool:
    return Instance.objects.filter(oauth_registration=True).exists()


def takes_documents() -> bool:
    return not Instance.objects.filter(oauth_documents=False).exists()


def switch(actor: Actor, user: Any, *, is_open: bool) -> None:
    """Raises access.Denied (recorded)."""
    _switch(actor, user, "oauth_registration", "client registration", is_open=is_open)


def switch_documents(actor: Actor, user: Any, *, is_open: bool) -> None:
    """Raises access.Denied (recorded). Grants of clients with a document stay."""
    _switch(actor, user, "oauth_documents", "client metadata documents", is_open=is_open)


def _switch(actor: Actor, user: Any, name: str, subject: str, *, is_open: bool) -> None:
    permissions.require(user, actor, "administer", subject=subject)
    with audited(actor) as trail:
        row, _ = Instance.objects.select_for_update().get_or_create(pk=instance.KEY)
        if getattr(row, name) != is_open:
            setattr(row, name, is_open)
            row.save(update_fields=[name])
            trail.note(AuditAction.OAUTH_REGISTRATION_CHANGE, None, subject, {"open": is_open})


def register(actor: Actor, found: Any) -> tuple[OAuthClient, str]:
    """Returns the client and its secret, "" for a public one. Raises BadClient."""
    if not isinstance(found, dict):
        raise BadClient("Send a JSON object.")
    method = found.get("token_endpoint_auth_method", "client_secret_basic")
    if method not in _METHODS:
        raise BadClient(f"token_endpoint_auth_method {str(method)[:60]} is not supported.")
    wanted = found.get("grant_types", ["authorization_code"])
    if not isinstance(wanted, list) or "authorization_code" not in wanted:
        raise BadClient("grant_types must include authorization_code.")
    redirects = clients.checked_redirects(found.get("redirect_uris"))
    clients.forget_unused()
    if OAuthClient.objects.filter(kind=OAuthClientKind.REGISTERED).count() >= MOST_CLIENTS:
        raise BadClient("Too many clients are registered. Ask an administrator to delete some.")
    secret = "" if method == _PUBLIC else secrets.token_urlsafe(32)
    with audited(actor) as trail:
        client = OAuthClient.objects.create(
            kind=OAuthClientKind.REGISTERED,
            client_id=secrets.token_urlsafe(18),
            name=clients.cleaned_name(found.get("client_name")),
            redirect_uris=redirects,
            digest=tokens.digest(secret) if secret else "",
        )
        trail.note(AuditAction.OAUTH_CLIENT_REGISTER, None, client.label, clients.facts(client))
    return client, secret


def answer(client: OAuthClient, secret: str) -> dict[str, Any]:
    """RFC 7591 section 3.2.1."""
    found: dict[str, Any] = {
        "client_id": client.client_id,
        "client_id_issued_at": int(client.created_at.timestamp()),
        "client_name": client.name,
        "redirect_uris": client.redirect_uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "client_secret_basic" if secret else _PUBLIC,
    }
    if secret:
        found |= {"client_secret": secret, "client_secret_expires_at": 0}
    return found
