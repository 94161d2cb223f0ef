"""What the credential pages read: never a value, always its health. Secret rows of servers are also on the board."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.utils import timezone

from servers.credentials.binding import bound_to, in_words, place_of
from servers.enums import CredentialKind, IdentityKind
from servers.models import Credential, CredentialUse, Identity, Server, ServerValue

SOON = timedelta(days=7)
SHOWN = 500


@dataclass(frozen=True)
class CredentialHealth:
    """`tone` as in the kit's tags: ok, warn, bad or empty."""

    word: str
    tone: str
    icon: str
    title: str = ""


@dataclass(frozen=True)
class CredentialRow:
    """One line of the board. `credential` None: a secret header or variable of the one server in `servers`."""

    name: str
    kind: str
    bound_to: str
    fingerprint: str
    sealed_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    refreshed_at: datetime | None
    refresh_fault: str
    health: CredentialHealth
    credential: Credential | None = None
    servers: Sequence[Server] = field(default_factory=list)
    blanked: Sequence[Server] = field(default_factory=list)


def board(visible: QuerySet[Server]) -> list[CredentialRow]:
    """Credentials that need attention first, then by name. Four queries."""
    credentials = _with_uses(Credential.objects.select_related("owner"), visible)[:SHOWN]
    values = ServerValue.objects.filter(secret=True, server__in=visible).select_related("server")[:SHOWN]
    rows = [*map(_row, credentials), *map(_value_row, values)]
    return sorted(rows, key=lambda row: (row.health.tone not in ("bad", "warn"), row.name.lower()))


def is_cut(rows: Sequence[CredentialRow]) -> bool:
    """Whether there may be more rows than are listed."""
    of_vault = sum(row.credential is not None for row in rows)
    return max(of_vault, len(rows) - of_vault) >= SHOWN


def row_of(credential: Credential, visible: QuerySet[Server]) -> CredentialRow:
    return _row(_with_uses(Credential.objects.filter(pk=credential.pk), visible).get())


def uses_of(server: Server) -> list[CredentialUse]:
    """The uses by the shared identity."""
    uses = CredentialUse.objects.filter(identity__server=server, identity__kind=IdentityKind.SHARED)
    return list(uses.select_related("credential", "identity"))


def own_uses(identity: Identity) -> list[CredentialUse]:
    return list(identity.uses.select_related("credential"))


def place_words(server: Server) -> str:
    return in_words(place_of(server))


def _with_uses(rows: QuerySet[Credential], visible: QuerySet[Server]) -> Any:
    uses = CredentialUse.objects.filter(identity__server__in=visible).select_related("identity__server")
    return rows.prefetch_related(Prefetch("uses", queryset=uses, to_attr="shown_uses"))


def _row(credential: Any) -> CredentialRow:
    servers = [use.identity.server for use in credential.shown_uses if use.blanked_at is None]
    blanked = [use.identity.server for use in credential.shown_uses if use.blanked_at is not None]
    return CredentialRow(
        name=credential.name,
        kind=CredentialKind(credential.kind).label,
        bound_to=in_words(bound_to(credential)),
        fingerprint=credential.fingerprint,
        sealed_at=credential.sealed_at,
        last_used_at=credential.last_used_at,
        expires_at=credential.expires_at,
        refreshed_at=credential.refreshed_at,
        refresh_fault=credential.refresh_fault,
        health=_health(credential, servers, blanked),
        credential=credential,
        servers=servers,
        blanked=blanked,
    )


def _value_row(row: ServerValue) -> CredentialRow:
    missing = CredentialHealth("Value needed", "warn", "alert-triangle", "Enter the value under the server's Settings.")
    return CredentialRow(
        name=row.name,
        kind=row.get_kind_display(),
        bound_to=place_words(row.server),
        fingerprint=row.fingerprint,
        sealed_at=row.updated_at,
        last_used_at=row.last_used_at,
        expires_at=None,
        refreshed_at=None,
        refresh_fault="",
        health=_IN_USE if row.sealed is not None else missing,
        servers=[row.server],
    )


_IN_USE = CredentialHealth("In use", "ok", "circle-check")


def _health(credential: Credential, servers: Sequence[Server], blanked: Sequence[Server]) -> CredentialHealth:
    now = timezone.now()
    kind = CredentialKind(credential.kind)
    refreshed = kind == CredentialKind.OAUTH or kind.fetches_tokens
    if credential.refresh_fault and kind.fetches_tokens:
        return CredentialHealth("No token", "bad", "alert-circle", credential.refresh_fault)
    if credential.refresh_fault:
        return CredentialHealth("Sign in again", "bad", "alert-circle", credential.refresh_fault)
    if credential.expires_at is not None and not refreshed:
        if credential.expires_at <= now:
            return CredentialHealth("Expired", "bad", "clock-x")
        if credential.expires_at <= now + SOON:
            return CredentialHealth("Expires soon", "warn", "alert-triangle")
    if blanked:
        return CredentialHealth(
            "Address changed", "warn", "alert-triangle", "A server that used it now has a different address."
        )
    return _IN_USE if servers else CredentialHealth("Not used", "", "circle-dashed")
