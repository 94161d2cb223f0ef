"""An authorization of mcpadmin at a server (OAuth): started by a person, prepared and completed in a worker.

Each step is one conditional UPDATE from the previous state, so it happens once. What a browser returns is bound to the
person, the browser and the one `state` that was sent out, and is valid for ten minutes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from servers import access, connect_limit, crypto, permissions
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor, Event, ServerRef
from servers.credentials import identities
from servers.credentials.binding import require_encrypted
from servers.credentials.references import OPEN_ADDRESS, has_reference
from servers.enums import AuditAction, AuditOutcome, AuthorizationState, IdentityKind, TransportKind
from servers.json.canonical import sha256
from servers.models import Credential, Identity, Server, ServerAuthorization
from servers.secret import Secret
from servers.signals import authorization_asked

LIFETIME = timedelta(minutes=10)
#: time for a worker to fetch the token, however late the browser came back
FINISHING = timedelta(minutes=2)
PERMISSION = "manage_credential"
TABLE = ServerAuthorization._meta.db_table
_MAX_PARAMETERS, _MAX_CHARS = 10, 8_192
DETAIL_CHARS = 500


class Forged(Exception):
    """An answer that belongs to no open authorization of this person in this browser."""


@dataclass(frozen=True)
class ChosenClient:
    """A client that was registered manually. `forget_client`: do not use that of an earlier sign-in either."""

    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    forget_client: bool = False

    def settings(self) -> dict[str, Any]:
        """As `sessions.mcp.oauth.settings` names them."""
        if self.client_id:
            return {"client_id": self.client_id, "client_secret": self.client_secret}
        return {"forget_client": True} if self.forget_client else {}


# --- in the web process --------------------------------------------------------------------------------------------------
def begin(
    actor: Actor, user: Any, server: Server, browser: str, client: ChosenClient | None = None
) -> ServerAuthorization:
    """For the shared identity. `browser`: the key of the browser's session. `client`: set if a person chose one."""
    permissions.require(user, actor, "change_server", server)
    permissions.require(user, actor, PERMISSION, server)
    _require_possible(user, server)
    with audited(actor) as trail:
        identity = Identity.objects.get(server=server, kind=IdentityKind.SHARED)
        return _begun(trail, identity, user, browser, client)


def begin_own(
    actor: Actor, user: Any, server: Server, browser: str, client: ChosenClient | None = None
) -> ServerAuthorization:
    """For the user's own identity, which is used once a first sign-in is complete: until then, and if that never
    happens, the user's calls continue as before."""
    _require_possible(user, server)
    with identities.begun(actor, user, server, in_use=False) as (trail, identity):
        return _begun(trail, identity, user, browser, client)


def _require_possible(user: Any, server: Server) -> None:
    if server.transport == TransportKind.STDIO:
        raise ValidationError("A local process has no authorization server.", code="transport")
    if has_reference(server.url):
        raise ValidationError(OPEN_ADDRESS, code="reference")
    require_encrypted(server.url)
    connect_limit.require(user)
    purge()


def _begun(
    trail: Trail, identity: Identity, user: Any, browser: str, client: ChosenClient | None
) -> ServerAuthorization:
    row = ServerAuthorization(
        identity=identity, user=user, browser=sha256(browser), expires_at=timezone.now() + LIFETIME
    )
    if client is not None and (settings := client.settings()):
        _put(row, "client", settings)
    row.save(force_insert=True)
    trail.add(identities.event(trail, identity, AuditAction.SIGN_IN_BEGIN, identity.server.name))
    ask(row)
    return row


def ask(row: ServerAuthorization) -> None:
    """Have a worker do the next step. May be called repeatedly."""
    label = row.identity.server.worker_label
    send = partial(authorization_asked.send_robust, sender=ServerAuthorization, authorization_uid=row.uid, label=label)
    transaction.on_commit(send, robust=True)


def of_person(user: Any, browser: str, uid: UUID) -> ServerAuthorization | None:
    rows = ServerAuthorization.objects.select_related("identity__server")
    return rows.filter(uid=uid, user_id=user.pk, browser=sha256(browser)).first()


def newest_of(user: Any) -> ServerAuthorization | None:
    """The newest authorization that this person started, in any browser, until it is purged."""
    rows = ServerAuthorization.objects.select_related("identity__server").filter(user_id=user.pk)
    return rows.order_by("-pk").first()


def address(row: ServerAuthorization) -> str:
    """The URL to which the browser is sent. Raises crypto.SealError."""
    return str(opened(row, "url")["url"])


def answer(user: Any, browser: str, parameters: Mapping[str, str]) -> ServerAuthorization:
    """Accept the browser's answer, once. Raises Forged, and access.Denied for a person who may no longer do what was
    started; no token is requested then."""
    given = {name: value for name, value in parameters.items() if len(name) + len(value) <= _MAX_CHARS}
    found = ServerAuthorization.objects.select_related("identity__server").filter(
        state_digest=sha256(given.get("state", "")), user_id=user.pk, browser=sha256(browser)
    )
    row = found.first()
    if row is None or len(given) > _MAX_PARAMETERS or len(given) != len(parameters):
        raise Forged
    for permission in ("change_server", PERMISSION) if row.identity.user_id is None else (identities.PERMISSION,):
        access.require(user, permission, row.identity.server)
    _put(row, "answer", given)
    until = max(row.expires_at, timezone.now() + FINISHING)
    fields = {"sealed_answer": row.sealed_answer, "answer_key_id": row.answer_key_id, "expires_at": until}
    with transaction.atomic():
        if not _step(row.uid, AuthorizationState.READY, AuthorizationState.ANSWERED, **fields):
            raise Forged
        ask(row)
    return row


# --- in a worker ---------------------------------------------------------------------------------------------------------
def take(uid: UUID) -> ServerAuthorization | None:
    """The sign-in whose next step is ours now: in state preparing or finishing."""
    took = _step(uid, AuthorizationState.REQUESTED, AuthorizationState.PREPARING) or _step(
        uid, AuthorizationState.ANSWERED, AuthorizationState.FINISHING
    )
    return ServerAuthorization.objects.select_related("identity__server", "user").get(uid=uid) if took else None


def waiting(labels: Sequence[str]) -> list[UUID]:
    """Authorizations whose next step is for a worker with these labels: the wake-up may have been lost."""
    rows = ServerAuthorization.objects.filter(state__in=_FOR_WORKER, expires_at__gt=timezone.now())
    mine = rows.filter(identity__server__worker_label__in=["", *labels])
    return list(mine.order_by("pk").values_list("uid", flat=True)[:_AT_ONCE])


def end_lost() -> list[Event]:
    """End authorizations that a worker left unfinished, so that their secrets are not kept for ever."""
    left = ServerAuthorization.objects.filter(state__in=UNDER_WAY, expires_at__lte=timezone.now())
    rows = left.select_related("identity__server", "user")[:_AT_ONCE]
    return [
        event for row in rows for event in failed(row, "The worker that handled this sign-in is gone. Sign in again.")
    ]


def ready(row: ServerAuthorization, issuer: str, state: str, pending: Mapping[str, Any], url: str) -> bool:
    _put(row, "pending", pending)
    _put(row, "url", {"url": url})
    fields = {name: getattr(row, name) for name in ("sealed_pending", "pending_key_id", "sealed_url", "url_key_id")}
    known = {"issuer": issuer[:2000], "state_digest": sha256(state)}
    return _step(row.uid, AuthorizationState.PREPARING, AuthorizationState.READY, **known, **fields)


def done(row: ServerAuthorization) -> list[Event]:
    """Signed in: the sealed values are no longer needed, and the session is reopened."""
    if not _step(row.uid, AuthorizationState.FINISHING, AuthorizationState.DONE, **_EMPTY):
        return []
    trail = Trail(Actor.of_user(row.user))
    if row.identity.user_id is not None:
        identities.enter(trail, row.identity)
    identities.notify(row.identity)
    return [*trail.events, _event(row, AuditOutcome.OK, {"issuer": row.issuer})]


def failed(row: ServerAuthorization, detail: str, recorded: str = "") -> list[Event]:
    """Also for an unfinished one. `recorded`: the detail without text from a server, because the contents of an event
    cannot be erased; empty if `detail` has no such text."""
    fields = {"detail": detail[:DETAIL_CHARS], **_EMPTY}
    if not any(_step(row.uid, state, AuthorizationState.FAILED, **fields) for state in UNDER_WAY):
        return []
    return [_event(row, AuditOutcome.FAILED, {"detail": (recorded or detail)[:DETAIL_CHARS]})]


def opened(row: ServerAuthorization, part: str) -> dict[str, Any]:
    """Empty when there is none. Raises crypto.SealError."""
    sealed = getattr(row, f"sealed_{part}")
    if sealed is None:
        return {}
    key_id = getattr(row, f"{part}_key_id")
    text = crypto.open_sealed(sealed, key_id=key_id, table=TABLE, uid=row.uid, field=f"sealed_{part}")
    found: dict[str, Any] = json.loads(text.reveal())
    return found


def purge() -> int:
    """Returns how many. Also deletes what they stored for an identity that was never used."""
    over = ServerAuthorization.objects.filter(expires_at__lte=timezone.now() - LIFETIME)
    unused = Identity.objects.filter(ended_at__isnull=False, authorizations=None)
    with transaction.atomic():
        purged = over.delete()[0]
        Credential.objects.filter(owner__isnull=False, uses__identity__in=unused).delete()
    return purged


# --- steps ---------------------------------------------------------------------------------------------------------------
_FOR_WORKER = (AuthorizationState.REQUESTED, AuthorizationState.ANSWERED)
_AT_ONCE = 20
UNDER_WAY = (AuthorizationState.PREPARING, AuthorizationState.FINISHING)
_EMPTY = {f"sealed_{part}": None for part in ("client", "pending", "url", "answer")}


def _step(uid: UUID, before: AuthorizationState, after: AuthorizationState, **fields: Any) -> bool:
    """An end is always recorded; any other step only while the sign-in is valid."""
    rows = ServerAuthorization.objects.filter(uid=uid, state=before)
    if after not in (AuthorizationState.DONE, AuthorizationState.FAILED):
        rows = rows.filter(expires_at__gt=timezone.now())
    return rows.update(state=after, **fields) == 1


def _put(row: ServerAuthorization, part: str, value: Mapping[str, Any]) -> None:
    text = Secret(json.dumps(dict(value)))
    sealed, key_id = crypto.seal(text.reveal(), table=TABLE, uid=row.uid, field=f"sealed_{part}")
    setattr(row, f"sealed_{part}", sealed)
    setattr(row, f"{part}_key_id", key_id)


def _event(row: ServerAuthorization, outcome: AuditOutcome, details: dict[str, Any]) -> Event:
    server = row.identity.server
    return Event(
        action=AuditAction.SIGN_IN_END,
        outcome=outcome,
        actor=Actor.of_user(row.user),
        server=ServerRef.of(server),
        identity_name=row.identity.name,
        subject=server.name,
        details=details,
    )
