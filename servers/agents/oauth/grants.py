"""What a person allowed a client to do, the code that the client redeems for it, and the tokens that prove it.

A grant is an AgentToken with a client: bound to its person, one endpoint (RFC 8707), scopes and an end. Its access tokens
last an hour. A refresh token is good for one use; a second use means that someone else has it, and ends the grant.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from servers import access, permissions
from servers.agents import tokens
from servers.agents.addresses import address_of
from servers.agents.tokens import ACCESS_PREFIX, MOST_DAYS
from servers.audit.acts import audited
from servers.audit.record import Actor, ServerRef
from servers.enums import ActionSource, AgentScope, AuditAction
from servers.models import AgentToken, Bundle, OAuthClient, OAuthCode, OAuthToken, Server

CODE_SECONDS: Final = 60
ACCESS_SECONDS: Final = 3_600
REFRESH_PREFIX: Final = "mcr"
#: the windows of one client may refresh at once, and an answer may get lost
SECOND_USE: Final = timedelta(seconds=10)


@dataclass(frozen=True)
class Endpoint:
    """The endpoint of a server, or of a bundle with those of its servers that the person can see."""

    uid: UUID
    slug: str
    name: str
    servers: Sequence[Server]

    @classmethod
    def of(cls, server: Server) -> "Endpoint":
        return cls(server.uid, server.slug, server.name, [server])

    @property
    def ref(self) -> ServerRef | None:
        """For the audit log: events of a bundle name no server."""
        return ServerRef.of(self.servers[0]) if [one.slug for one in self.servers] == [self.slug] else None


def endpoint_of(user: Any, **key: Any) -> Endpoint | None:
    """`key`: its slug or uid. None if there is none that this person can see."""
    visible = access.visible_servers(user).filter(archived_at=None)
    server = visible.filter(**key).first()
    if server is not None:
        return Endpoint.of(server)
    bundle = Bundle.objects.filter(**key, deleted_at=None).first()
    if bundle is None:
        return None
    mine = visible.filter(bundle_members__bundle=bundle, bundle_members__retired_at=None).order_by("name")
    return Endpoint(bundle.uid, bundle.slug, bundle.name, list(mine)) if mine else None


def bundles_of(user: Any) -> QuerySet[Bundle]:
    """The bundles that `endpoint_of` finds for this person, by name."""
    visible = access.visible_servers(user).filter(archived_at=None)
    mine = Bundle.objects.filter(deleted_at=None, members__server__in=visible, members__retired_at=None)
    return mine.distinct().order_by("name", "pk")


@dataclass(frozen=True)
class Consent:
    """What a person agreed to."""

    client: OAuthClient
    endpoint: Endpoint
    scopes: Collection[str]
    days: int
    redirect_uri: str
    challenge: str


@dataclass(frozen=True)
class Pair:
    """The only place with both tokens; they are not stored. `seconds`: how long the access token is valid."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    seconds: int


def facts(client: OAuthClient, redirect_uri: str) -> dict[str, Any]:
    return {"client": client.client_id, "client_name": client.name, "redirect_uri": redirect_uri[:300]}


def consent(actor: Actor, user: Any, given: Consent) -> str:
    """Create a grant and return the code that redeems it. Until then, the grant expires with the code. Raises
    access.Denied (recorded) and ValidationError."""
    permissions.require(user, actor, "call_tool", subject=given.client.label)
    tokens.require_room(user)
    now, code = timezone.now(), secrets.token_urlsafe(32)
    end = now + timedelta(days=max(1, min(given.days, MOST_DAYS)))
    with audited(actor) as trail:
        grant = AgentToken.objects.create(
            public_id=tokens.new_public_id(),
            digest=tokens.digest(secrets.token_urlsafe(32)),
            user_id=user.pk,
            name=given.client.label[:120],
            client=given.client,
            resource=address_of(given.endpoint.slug),
            scopes=[scope.value for scope in AgentScope if scope.value in given.scopes],
            expires_at=now + timedelta(seconds=CODE_SECONDS),
        )
        grant.servers.set(given.endpoint.servers)
        OAuthCode.objects.create(
            digest=tokens.digest(code),
            grant=grant,
            redirect_uri=given.redirect_uri,
            challenge=given.challenge,
            grant_expires_at=end,
            expires_at=now + timedelta(seconds=CODE_SECONDS),
        )
        details = facts(given.client, given.redirect_uri) | {
            "token": str(grant.uid),
            "endpoint": given.endpoint.slug,
            "scopes": grant.scopes,
            "expires": end.isoformat(timespec="seconds"),
        }
        trail.note(AuditAction.AGENT_TOKEN_ISSUE, given.endpoint.ref, grant.name, details)
    return code


def decline(actor: Actor, client: OAuthClient, endpoint: Endpoint | None, redirect_uri: str) -> None:
    with audited(actor) as trail:
        ref = endpoint.ref if endpoint is not None else None
        trail.note(AuditAction.AGENT_TOKEN_DECLINE, ref, client.label, facts(client, redirect_uri))


def take_code(client: OAuthClient, text: str) -> OAuthCode | None:
    """Use the code, which is valid once. A second use ends the grant (RFC 9700 section 4.5). Runs in a transaction."""
    now, digest = timezone.now(), tokens.digest(text)
    if OAuthCode.objects.filter(digest=digest, used_at=None).update(used_at=now):
        row = OAuthCode.objects.select_related("grant__user").get(digest=digest)
        fits = row.grant.client_id == client.pk and row.expires_at > now and row.grant.revoked_at is None
        return row if fits and row.grant.user.is_active else None
    used = OAuthCode.objects.select_related("grant__user").filter(digest=digest).first()
    if used is not None:
        _stolen(used.grant, "its authorization code was used twice")
    return None


def redeem(code: OAuthCode) -> Pair:
    """Runs in the transaction that took the code."""
    grant = code.grant
    grant.expires_at = code.grant_expires_at
    grant.save(update_fields=["expires_at"])
    OAuthClient.objects.filter(grants=grant).update(last_used_at=timezone.now())
    return _pair(grant)


def of_refresh(client: OAuthClient, text: str) -> AgentToken | None:
    """The grant of a refresh token that is not used yet."""
    mine = {"oauth_tokens__digest": tokens.digest(text), "oauth_tokens__refresh": True}
    return AgentToken.objects.filter(client=client, oauth_tokens__replaced_at=None, **mine).first()


def take_refresh(client: OAuthClient, text: str) -> AgentToken | None:
    """Use a refresh token, which is valid once, and return its grant. Runs in a transaction."""
    now, digest = timezone.now(), tokens.digest(text)
    rows = OAuthToken.objects.filter(digest=digest, refresh=True, grant__client=client)
    token = rows.select_related("grant__user").first()
    if token is None or token.grant.state != "active" or not token.grant.user.is_active or token.expires_at <= now:
        return None
    if OAuthToken.objects.filter(pk=token.pk, replaced_at=None).update(replaced_at=now):
        return token.grant
    replaced = OAuthToken.objects.values_list("replaced_at", flat=True).get(pk=token.pk)
    if replaced is not None and now - replaced <= SECOND_USE:
        return token.grant
    _stolen(token.grant, "a refresh token was used twice")
    return None


def refresh(grant: AgentToken) -> Pair:
    """Runs in the transaction that took the refresh token. Access tokens issued earlier stay valid until they
    expire."""
    OAuthClient.objects.filter(grants=grant).update(last_used_at=timezone.now())
    return _pair(grant)


def revoke_by_client(client: OAuthClient, text: str) -> None:
    """RFC 7009: either token ends the grant, because no part of it is of use without the other."""
    token = OAuthToken.objects.select_related("grant__user").filter(digest=tokens.digest(text)).first()
    if token is not None and token.grant.client_id == client.pk and token.grant.revoked_at is None:
        _end(token.grant, "the client itself", "revoked by the client")


def forget_expired() -> int:
    """Delete expired codes and tokens, and grants that were never redeemed."""
    now = timezone.now()
    gone = OAuthToken.objects.filter(Q(expires_at__lt=now) | Q(grant__revoked_at__lt=now - SECOND_USE)).delete()[0]
    codes = OAuthCode.objects.filter(expires_at__lt=now - timedelta(hours=1))
    AgentToken.objects.filter(codes__in=codes, expires_at__lt=now, oauth_tokens=None, last_used_at=None).delete()
    return gone + OAuthCode.objects.filter(expires_at__lt=now - timedelta(days=1)).delete()[0]


def _pair(grant: AgentToken) -> Pair:
    now = timezone.now()
    access = f"{ACCESS_PREFIX}_{grant.public_id}_{secrets.token_urlsafe(32)}"
    fresh = f"{REFRESH_PREFIX}_{grant.public_id}_{secrets.token_urlsafe(32)}"
    until = min(grant.expires_at, now + timedelta(seconds=ACCESS_SECONDS))
    ends: list[tuple[str, bool, datetime]] = [
        (access, False, until),
        (fresh, True, grant.expires_at),
    ]
    OAuthToken.objects.bulk_create(
        OAuthToken(digest=tokens.digest(text), grant=grant, refresh=is_refresh, expires_at=end)
        for text, is_refresh, end in ends
    )
    return Pair(access, fresh, int((until - now).total_seconds()))


def _stolen(grant: AgentToken, why: str) -> None:
    if grant.revoked_at is None:
        _end(grant, "mcpadmin", why)


def _end(grant: AgentToken, by: str, why: str) -> None:
    with audited(Actor(grant.user_id, grant.user.get_username(), way=ActionSource.AGENT)) as trail:
        grant.revoked_at, grant.revoked_by = timezone.now(), by
        grant.save(update_fields=["revoked_at", "revoked_by"])
        details = {"token": str(grant.uid), "of": grant.user.get_username(), "why": why}
        trail.note(AuditAction.AGENT_TOKEN_REVOKE, None, grant.name, details)
