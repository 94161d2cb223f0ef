"""Issuing, checking and revoking the tokens of agents.

A token reads `mca_<12 characters>_<43 characters>`: the prefix is for secret scanners, the first part finds the row, the
second is the secret. Access tokens of OAuth grants read `mco_…` and have rows of their own (`oauth/grants.py`).
Permissions are those of the token and those of its person together, at each request.
"""

import hashlib
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db.models import Case, QuerySet, When
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from servers import access, limits, permissions
from servers.accounts import service_accounts
from servers.accounts.authority import managed
from servers.agents.policies import Policy, policy_of
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor
from servers.enums import AgentScope, AuditAction
from servers.models import AgentToken, OAuthToken, Server

PREFIX: Final = "mca"
ACCESS_PREFIX: Final = "mco"
MOST_DAYS: Final = 365
_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
_WRITTEN: Final = re.compile(rf"({PREFIX}|{ACCESS_PREFIX})_([a-z0-9]{{12}})_([A-Za-z0-9_-]{{43}})\Z")
#: whose tokens a person may see and revoke besides their own
MANAGE: Final = "manage_users"
USED_EVERY: Final = timedelta(minutes=1)


class Unknown(Exception):
    """Not a valid token. `token` is set if it was genuine; `why` is for the audit log, never for the caller."""

    def __init__(self, why: str, token: AgentToken | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.token = token


@dataclass(frozen=True)
class NewToken:
    """What a new token should allow. `servers` None: every server, including those registered later."""

    name: str
    days: int
    scopes: Collection[str]
    servers: Collection[Server] | None = None
    tools: Sequence[str] = ()
    addresses: Sequence[str] = ()


@dataclass(frozen=True)
class Issued:
    """The only object with the token itself, which is not stored."""

    token: AgentToken
    text: str = field(repr=False)


@dataclass(frozen=True)
class Principal:
    """An authenticated agent: its person with their current permissions, and what the token leaves of these. `until`:
    when the access token of a grant expires."""

    token: AgentToken
    user: Any = field(repr=False)
    server_ids: frozenset[int] | None
    policy: Policy
    until: datetime | None = None

    def has(self, scope: str) -> bool:
        return scope in self.token.scopes

    def reaches(self, server_id: int) -> bool:
        return self.server_ids is None or server_id in self.server_ids

    def may_use(self, tool: str) -> bool:
        return names_tool(self.token, tool)


def names_tool(token: AgentToken, tool: str) -> bool:
    return not token.tools or any(fnmatchcase(tool, pattern) for pattern in token.tools)


# --- verbs -----------------------------------------------------------------------------------------------------------
def issue(actor: Actor, user: Any, wanted: NewToken) -> Issued:
    """Issue a personal token of `user`. Raises access.Denied (recorded) and ValidationError by field."""
    permissions.require(user, actor, "call_tool", subject=wanted.name[:200])
    with audited(actor) as trail:
        return _issued(trail, user, wanted)


def issue_for(actor: Actor, by: Any, account: Any, wanted: NewToken) -> Issued:
    """A token of a service account, issued by a person who manages it. Raises access.Denied (recorded), Refused, and
    ValidationError by field."""
    if not access.may(account, "call_tool"):
        raise ValidationError(
            f"{account.get_username()} does not have permission to call tools. Grant it on the Users page."
        )
    with managed(actor, by, wanted.name) as trail:
        service_accounts.require_managed(by, account)
        return _issued(trail, account, wanted)


def _issued(trail: Trail, user: Any, wanted: NewToken) -> Issued:
    addresses = [str(network) for network in _networks(wanted.addresses)]
    require_room(user)
    public_id = new_public_id()
    secret = secrets.token_urlsafe(32)
    token = AgentToken.objects.create(
        public_id=public_id,
        digest=digest(secret),
        user_id=user.pk,
        name=wanted.name,
        scopes=[scope.value for scope in AgentScope if scope.value in wanted.scopes],
        every_server=wanted.servers is None,
        tools=list(wanted.tools),
        addresses=addresses,
        expires_at=timezone.now() + timedelta(days=max(1, min(wanted.days, MOST_DAYS))),
    )
    token.servers.set(wanted.servers or ())
    details = {
        "of": user.get_username(),
        "token": str(token.uid),
        "scopes": token.scopes,
        "servers": "every" if wanted.servers is None else sorted(server.name for server in wanted.servers)[:50],
        "tools": token.tools[:50],
        "addresses": token.addresses[:50],
        "expires": token.expires_at.isoformat(timespec="seconds"),
    }
    trail.note(AuditAction.AGENT_TOKEN_ISSUE, None, token.name, details)
    return Issued(token, f"{PREFIX}_{public_id}_{secret}")


def require_room(user: Any) -> None:
    """Raises ValidationError when this account has too many tokens and grants."""
    active = AgentToken.objects.filter(user_id=user.pk, revoked_at=None, expires_at__gt=timezone.now())
    if active.count() >= limits.number("agent_tokens"):
        who = f"{user.get_username()} has" if service_accounts.is_service_account(user) else "You have"
        raise ValidationError(
            f"{who} too many tokens. {limits.stated('agent_tokens')} Revoke one that you no longer use."
        )


def revoke(actor: Actor, user: Any, token: AgentToken) -> bool:
    """The token stops working, and its open streams end. False if it was revoked already. Raises access.Denied
    (recorded) for another person's token without permission to manage users."""
    if token.user_id != user.pk:
        permissions.require(user, actor, MANAGE, subject=token.name)
    with audited(actor) as trail:
        row = AgentToken.objects.select_for_update(no_key=True).get(pk=token.pk)
        if row.revoked_at is not None:
            return False
        row.revoked_at, row.revoked_by = timezone.now(), actor.name[:150]
        row.save(update_fields=["revoked_at", "revoked_by"])
        trail.note(
            AuditAction.AGENT_TOKEN_REVOKE, None, row.name, {"token": str(row.uid), "of": row.user.get_username()}
        )
    return True


def visible_tokens(user: Any) -> QuerySet[AgentToken]:
    """One's own; everyone's for those who manage users."""
    rows = AgentToken.objects.select_related("user", "client").prefetch_related("servers")
    return rows if access.may(user, MANAGE) else rows.filter(user_id=user.pk)


def active_first(rows: QuerySet[AgentToken]) -> QuerySet[AgentToken]:
    """Each part newest first."""
    active = When(revoked_at=None, expires_at__gt=timezone.now(), then=0)
    return rows.order_by(Case(active, default=1), "-id")


# --- checking --------------------------------------------------------------------------------------------------------
def principal_of(text: str, address: str) -> Principal:
    """Raises Unknown. Reads the database: for a thread. The person's permissions are read with it."""
    written = _WRITTEN.match(text)
    if written is not None and written.group(1) == ACCESS_PREFIX:
        found = _of_grant(text)
        return replace(_valid(found.grant, address), until=found.expires_at)
    token = None if written is None else _row().filter(public_id=written.group(2), client=None).first()
    # The comparison is made for unknown ids too, so that its duration reveals nothing about them.
    genuine = constant_time_compare(digest(written.group(3) if written else ""), token.digest if token else "0" * 64)
    if token is None or not genuine:
        raise Unknown("no such token")
    return _valid(token, address)


def _of_grant(text: str) -> OAuthToken:
    """Raises Unknown. Looked up by the digest of the whole text, so that the duration reveals nothing about it."""
    found = OAuthToken.objects.select_related("grant__user").filter(digest=digest(text), refresh=False).first()
    if found is None:
        raise Unknown("no such token")
    if found.expires_at <= timezone.now():  # every access token expires after an hour: not worth an audit event
        raise Unknown("the access token is expired")
    return found


def still_valid(token_pk: int, address: str) -> Principal:
    """The same for a stream whose token was checked when it opened. Raises Unknown."""
    token = _row().filter(pk=token_pk).first()
    if token is None:
        raise Unknown("no such token")
    return _valid(token, address)


def still_valid_keys(token_pks: Collection[int]) -> dict[int, bool]:
    """Which of these tokens are still valid; their permissions were checked before. One query."""
    rows = AgentToken.objects.filter(pk__in=token_pks, revoked_at=None, expires_at__gt=timezone.now())
    return dict.fromkeys(rows.filter(user__is_active=True).values_list("pk", flat=True), True)


def _row() -> QuerySet[AgentToken]:
    return AgentToken.objects.select_related("user")


def _valid(token: AgentToken, address: str) -> Principal:
    if token.state != "active":
        raise Unknown(token.state, token)
    if not token.user.is_active:
        raise Unknown("the account is disabled", token)
    if not _inside(address, token.addresses):
        raise Unknown(f"used from {address}", token)
    token.user.get_all_permissions()  # fills the cache of this object, so that no later check reads the database
    servers = None if token.every_server else frozenset(token.servers.values_list("pk", flat=True))
    return Principal(token, token.user, servers, policy_of(token))


def used(token_pk: int, address: str, program: str) -> None:
    """Remember the use, at most once a minute. For the audit writer's transaction."""
    now = timezone.now()
    rows = AgentToken.objects.filter(pk=token_pk).exclude(last_used_at__gt=now - USED_EVERY)
    named = {"last_program": program[:120]} if program else {}
    rows.update(last_used_at=now, last_address=address[:45], **named)


def is_genuine(text: str) -> bool:
    """Whether it names a token that is valid anywhere: checked before a large body is accepted. Reads the database."""
    try:
        principal_of(text, "")
    except Unknown as unknown:
        return unknown.token is not None and unknown.token.state == "active"
    return True


def digest(secret: str) -> str:
    """The stored form of a secret with 256 random bits, for which no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_public_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(12))


# --- addresses -------------------------------------------------------------------------------------------------------
def _networks(addresses: Sequence[str]) -> list[Any]:
    found, wrong = [], []
    for text in addresses:
        try:
            found.append(ip_network(text, strict=False))
        except ValueError:
            wrong.append(text)
    if wrong:
        words = f"{', '.join(wrong)[:200]}: not an address or network. Examples: 192.0.2.7, 10.0.0.0/8, 2001:db8::/32."
        raise ValidationError({"addresses": words})
    return found


def _inside(address: str, networks: Sequence[str]) -> bool:
    if not networks:
        return True
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return any(ip in ip_network(network) for network in networks)
