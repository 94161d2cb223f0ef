"""What an administrator does with a sink: add, change, test, pause, resume, set to another event, delete."""

import base64
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.db.models import F
from django.utils import timezone

from servers import access, connect_limit, crypto, instance, permissions
from servers.audit import query
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.enums import AuditAction, SinkKind
from servers.jobs.lifecycle import announce
from servers.models import AuditEvent, Sink
from servers.secret import Secret
from servers.signals import sink_asked
from servers.validators import origin

TABLE: Final = Sink._meta.db_table
PERMISSION: Final = "administer"
#: by Standard Webhooks
SIGNING_PREFIX: Final = "whsec_"
_SIGNING_BYTES: Final = 32
_FIELDS: Final = ("name", "address", "lines", "header", "ca", "certificate")


#: a worker that is forwarding can no longer write its result, and claims the sink again as it is now
_TAKEN_AWAY: Final = {"fence": F("fence") + 1, "lease_until": None}


class NameTaken(Exception):
    pass


class SecretNeeded(Exception):
    """`field`: "value" or "private_key". With another address or header it must be entered again."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


@dataclass(frozen=True)
class Secrets:
    """`value`: of the sink's header. `signing` signs messages to HTTP endpoints. `private_key`: PEM. Empty: none."""

    value: Secret = field(default_factory=lambda: Secret(""))
    signing: Secret = field(default_factory=lambda: Secret(""))
    private_key: Secret = field(default_factory=lambda: Secret(""))


@dataclass(frozen=True)
class SinkSettings:
    """`secrets`: as entered. Without a value or key, the stored one stays."""

    name: str
    kind: SinkKind
    address: str
    lines: bool = False
    header: str = ""
    ca: str = ""
    certificate: str = ""
    secrets: Secrets = field(default_factory=Secrets)


def create(user: access.User, actor: Actor, settings: SinkSettings, *, from_beginning: bool) -> tuple[Sink, Secret]:
    """The sink, and the secret that signs its messages: shown once; empty if it needs none. Raises Denied,
    NameTaken, SecretNeeded."""
    permissions.require(user, actor, PERMISSION, subject=settings.name)
    signing = _new_signing() if settings.kind == SinkKind.HTTP else Secret("")
    after = _before_oldest() if from_beginning else query.head_seq()
    sink = Sink(kind=settings.kind, created_name=actor.name, **_position(after))
    _set(sink, settings)
    _seal(sink, "signing", signing)
    try:
        with audited(actor) as trail:
            sink.save()
            trail.note(AuditAction.SINK_CREATE, None, sink.name, _facts(sink) | {"after": sink.cursor})
    except IntegrityError:
        raise NameTaken from None
    _announce(sink)
    return sink, signing


def change(user: access.User, actor: Actor, sink: Sink, settings: SinkSettings) -> None:
    """Secrets belong to the address that they were entered for: another origin needs them again. A batch that a worker
    is sending with the old settings is sent again with the new ones. Raises Denied, NameTaken, SecretNeeded."""
    permissions.require(user, actor, PERMISSION, subject=sink.name)
    before, address = _facts(sink), sink.address
    _set(sink, settings)
    _forget_failure(sink)
    details = {"before": before, "after": _facts(sink), **_unseen(settings, before["address"], address)}
    try:
        with audited(actor) as trail:
            sink.save(
                update_fields=[
                    *_FIELDS, "sealed_value", "value_key_id", "sealed_private_key", "private_key_key_id",
                    "failures", "failing_since", "next_attempt_at", "last_detail",
                ]
            )  # fmt: skip
            _take_away(sink)
            trail.note(AuditAction.SINK_CHANGE, None, sink.name, details)
    except IntegrityError:
        raise NameTaken from None
    _announce(sink)


def renew_signing(user: access.User, actor: Actor, sink: Sink) -> Secret:
    """Raises Denied."""
    permissions.require(user, actor, PERMISSION, subject=sink.name)
    signing = _new_signing()
    _seal(sink, "signing", signing)
    with audited(actor) as trail:
        sink.save(update_fields=["sealed_signing", "signing_key_id"])
        _take_away(sink)
        trail.note(AuditAction.SINK_CHANGE, None, sink.name, {"signing_secret": "renewed"})
    return signing


def pause(user: access.User, actor: Actor, sink: Sink) -> None:
    _update(user, actor, sink, AuditAction.SINK_PAUSE, only={"paused_at": None}, paused_at=timezone.now())


def resume(user: access.User, actor: Actor, sink: Sink) -> None:
    """Also: try again now."""
    _update(user, actor, sink, AuditAction.SINK_RESUME, paused_at=None, next_attempt_at=None)


def rewind(user: access.User, actor: Actor, sink: Sink, seq: int) -> int:
    """The next event forwarded is the one after `seq`, at most the newest. Returns its number. Events that retention
    removed after they were forwarded do not count as lost."""
    after = max(min(max(0, seq), query.head_seq()), min(_before_oldest(), sink.cursor))
    changes = _position(after) | _TAKEN_AWAY | {"next_attempt_at": None}
    details = {"before": sink.cursor, "after": after}
    _update(user, actor, sink, AuditAction.SINK_REWIND, details, **changes)
    return after + 1


def request_test(user: access.User, actor: Actor, sink: Sink) -> None:
    """A worker sends a record without an event. Raises Denied, and ValidationError if requested too often, or on an
    instance that is on hold."""
    if instance.is_held():
        raise ValidationError(instance.ON_HOLD)
    connect_limit.require(user, AuditAction.SINK_TEST)
    now = timezone.now()
    _update(user, actor, sink, AuditAction.SINK_TEST, test_requested_at=now, test_ended_at=None, test_detail="")


def delete(user: access.User, actor: Actor, sink: Sink) -> None:
    permissions.require(user, actor, PERMISSION, subject=sink.name)
    with audited(actor) as trail:
        if sink.delete()[0]:
            trail.note(AuditAction.SINK_DELETE, None, sink.name, _facts(sink) | {"cursor": sink.cursor})
    announce()


def where(sink: Sink) -> str:
    """Host and port, or the origin of a URL: what the audit log and lists show. A path may be a secret."""
    if sink.kind == SinkKind.SYSLOG:
        return sink.address
    scheme, host, port = origin(sink.address)
    return f"{scheme}://{host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of a syslog receiver's address: `logs.example.com:6514`, `[2001:db8::5]:6514`. ValueError otherwise."""
    parts = urlsplit(f"//{address}")
    if not parts.hostname or parts.port is None or parts.path or parts.query or parts.username is not None:
        raise ValueError("no host and port")
    return parts.hostname, parts.port


def opened(sink: Sink) -> Secrets:
    """Only in workers. Raises crypto.SealError."""
    return Secrets(**{part: _opened(sink, part) for part in ("value", "signing", "private_key")})


# --- private ------------------------------------------------------------------------------------------------------------
def _update(
    user: access.User,
    actor: Actor,
    sink: Sink,
    action: AuditAction,
    details: dict[str, Any] | None = None,
    *,
    only: Mapping[str, Any] | None = None,
    **changes: Any,
) -> None:
    """Changes nothing, and records no event, if the sink was deleted meanwhile or does not match `only`."""
    permissions.require(user, actor, PERMISSION, subject=sink.name)
    with audited(actor) as trail:
        if Sink.objects.filter(pk=sink.pk, **(only or {})).update(**changes):
            trail.note(action, None, sink.name, {"address": where(sink), **(details or {})})
    _announce(sink)


def _take_away(sink: Sink) -> None:
    """Take the sink from the worker that is forwarding to it with the old address and secrets."""
    Sink.objects.filter(pk=sink.pk).update(**_TAKEN_AWAY)


def _before_oldest() -> int:
    """The number before the oldest event that is left."""
    oldest = AuditEvent.objects.order_by("seq").values_list("seq", flat=True).first()
    return 0 if oldest is None else oldest - 1


def _position(seq: int) -> dict[str, Any]:
    """The fields of a cursor after this event. The hash tells later whether the log still is the same."""
    found = AuditEvent.objects.filter(seq=seq).values_list("hash", flat=True).first()
    return {"cursor": seq, "cursor_hash": found or ""}


def _set(sink: Sink, settings: SinkSettings) -> None:
    """A secret that was not entered stays only for the same origin and the same header or certificate. Raises
    SecretNeeded."""
    stays = bool(sink.address) and where(sink) == where(Sink(kind=sink.kind, address=settings.address))
    same_header, same_certificate = settings.header == sink.header, settings.certificate == sink.certificate
    for name in _FIELDS:
        setattr(sink, name, getattr(settings, name))
    entered = settings.secrets
    for part, secret, wanted, same in (
        ("value", entered.value, settings.header, same_header),
        ("private_key", entered.private_key, settings.certificate, same_certificate),
    ):
        if not wanted or secret:
            _seal(sink, part, secret if wanted else Secret(""))
        elif not (stays and same and getattr(sink, f"sealed_{part}") is not None):
            raise SecretNeeded(part)


def _seal(sink: Sink, part: str, secret: Secret) -> None:
    column, key_column = f"sealed_{part}", f"{part}_key_id"
    sealed, key_id = crypto.seal(secret.reveal(), table=TABLE, uid=sink.uid, field=column) if secret else (None, "")
    setattr(sink, column, sealed)
    setattr(sink, key_column, key_id)


def _opened(sink: Sink, part: str) -> Secret:
    sealed = getattr(sink, f"sealed_{part}")
    if sealed is None:
        return Secret("")
    key_id = getattr(sink, f"{part}_key_id")
    return crypto.open_sealed(sealed, key_id=key_id, table=TABLE, uid=sink.uid, field=f"sealed_{part}")


def _facts(sink: Sink) -> dict[str, Any]:
    return {
        "name": sink.name,
        "kind": str(sink.kind),
        "address": where(sink),
        "lines": sink.lines,
        "header": sink.header,
        "ca": _fingerprint(sink.ca),
        "certificate": _fingerprint(sink.certificate),
    }


def _fingerprint(pem: str) -> str:
    """The fingerprint of the public part; empty if there is none."""
    return hashlib.sha256(pem.encode()).hexdigest() if pem else ""


def _unseen(settings: SinkSettings, where_before: str, address: str) -> dict[str, str]:
    """What a change replaced that its event must not show."""
    same_place = where(Sink(kind=settings.kind, address=settings.address)) == where_before
    replaced = {
        "path": same_place and settings.address != address,
        "header_value": bool(settings.secrets.value),
        "private_key": bool(settings.secrets.private_key),
    }
    return {name: "replaced" for name, is_new in replaced.items() if is_new}


def _forget_failure(sink: Sink) -> None:
    sink.failures, sink.failing_since, sink.next_attempt_at, sink.last_detail = 0, None, None, ""


def _new_signing() -> Secret:
    return Secret(SIGNING_PREFIX + base64.b64encode(os.urandom(_SIGNING_BYTES)).decode())


def _announce(sink: Sink) -> None:
    """A worker looks at once, and pages look again."""
    announce()
    sink_asked.send_robust(sender=Sink, sink_uid=sink.uid)
