"""The pinned package of a server: stored at its first start, updated and rolled back only by people."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from servers import access, permissions
from servers.audit.acts import Trail, audited
from servers.audit.record import SYSTEM, Actor, Event, ServerRef
from servers.enums import AuditAction, AuditOutcome, Ecosystem, PinState, TransportKind
from servers.models import PinnedPackage, Server
from servers.packages import commands
from servers.signals import server_changed

PERMISSIONS = ("change_server", "manage_stdio")
#: stored instead of a lock file for an image that was built on the machine and has no registry digest
LOCAL_IMAGE = "local"
#: characters that a row of a pin holds
MOST_VERSION, MOST_INTEGRITY = 200, 300
_OF_PIN = ("ecosystem", "requested", "name", "version", "integrity", "lock", "dependencies")
#: what the pinned row knows of the registry
_UNCHECKED: dict[str, Any] = {
    "check_requested_at": None,
    "check_started_at": None,
    "checked_at": None,
    "check_problem": "",
    "changed_integrity": "",
    "changed_name": "",
}
_UNCOMPARED: dict[str, Any] = {
    "compare_requested_at": None,
    "compare_started_at": None,
    "compared_at": None,
    "compare_problem": "",
    "tools": {},
}


@dataclass(frozen=True)
class Pin:
    """`lock`: the lock file; empty where only the package itself is known."""

    ecosystem: Ecosystem
    requested: str
    name: str
    version: str
    integrity: str
    lock: str = ""
    dependencies: int = 0

    @classmethod
    def of(cls, row: PinnedPackage) -> "Pin":
        values = {name: getattr(row, name) for name in _OF_PIN}
        return cls(**values | {"ecosystem": Ecosystem(row.ecosystem)})

    def columns(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _OF_PIN}

    @property
    def is_portable(self) -> bool:
        """False for an image that was built on the machine: no registry has it."""
        return self.lock != LOCAL_IMAGE

    @property
    def plain(self) -> dict[str, str]:
        """For the audit log and an export."""
        return {"name": self.name, "version": self.version, "integrity": self.integrity}


class StaleConfirmation(ValidationError):
    """What the page showed has changed meanwhile."""

    def __init__(self) -> None:
        super().__init__("The package has changed since this page was shown. Check it again.", code="changed")


def may_decide(user: access.User) -> bool:
    return all(access.may(user, permission) for permission in PERMISSIONS)


def requested(server: Server) -> str:
    """What the registration asks for; empty where there is nothing to pin."""
    if server.transport != TransportKind.STDIO:
        return ""
    found = commands.readable(server.command, server.arguments)
    return found.requested if found else ""


def row_of(server: Server, state: PinState = PinState.PINNED) -> PinnedPackage | None:
    """None also if the registration now asks for another package."""
    asked = requested(server)
    return server.packages.filter(state=state, requested=asked).first() if asked else None


def of_server(server: Server) -> Pin | None:
    row = row_of(server)
    return Pin.of(row) if row else None


# --- by a start ---------------------------------------------------------------------------------------------------------
def keep(server_id: int, pin: Pin, before: Pin | None) -> Pin:
    """Store what a start resolved, or completed (`before`: the pin that it started with). Returns the valid pin, which
    is another worker's if that was faster. In the caller's transaction."""
    if Server.objects.select_for_update(no_key=True).filter(pk=server_id).first() is None:
        return pin  # it was deleted meanwhile
    rows = PinnedPackage.objects.filter(server_id=server_id, state=PinState.PINNED)
    stored = rows.first()
    if stored is not None and stored.requested == pin.requested:
        known = Pin.of(stored)
        if known != before or (known.name, known.version, known.integrity) != (pin.name, pin.version, pin.integrity):
            return known
        rows.update(lock=pin.lock, dependencies=pin.dependencies)
        return pin
    PinnedPackage.objects.filter(server_id=server_id).delete()  # for another package: the registration was changed
    PinnedPackage.objects.create(server_id=server_id, state=PinState.PINNED, pinned_at=timezone.now(), **pin.columns())
    return pin


def kept_event(server: ServerRef, pin: Pin) -> Event:
    details = pin.plain | {"dependencies": pin.dependencies}
    return Event(AuditAction.PACKAGE_PIN, AuditOutcome.OK, SYSTEM, server, subject=pin.name, details=details)


def note_changed(server_id: int, pin: Pin, name: str, integrity: str, *, look: bool = False) -> bool:
    """The registry offers other content under this version. `look`: have a worker find out what. Returns whether that is
    news."""
    rows = PinnedPackage.objects.filter(
        server_id=server_id, state=PinState.PINNED, version=pin.version, integrity=pin.integrity
    )
    news = rows.exclude(changed_integrity=integrity, changed_name=name)
    found = {"changed_integrity": integrity[:300], "changed_name": name[:300]}
    return bool(news.update(**found, **({"check_requested_at": timezone.now()} if look else {})))


def changed_event(server: ServerRef, pin: Pin, name: str, integrity: str) -> Event:
    details = pin.plain | {"changed": name, "offered": integrity}
    return Event(AuditAction.PACKAGE_REFUSE, AuditOutcome.DENIED, SYSTEM, server, subject=name, details=details)


# --- by people ----------------------------------------------------------------------------------------------------------
def update(actor: Actor, user: access.User, server: Server, integrity: str) -> PinnedPackage:
    """Take the offered version, which the page showed with this hash. Raises access.Denied, StaleConfirmation."""
    _require(actor, user, server)
    with audited(actor) as trail:
        now, before = _locked(server, PinState.OFFERED), _locked(server, PinState.PINNED)
        if now is None or before is None or now.integrity != integrity:
            raise StaleConfirmation
        same = now.ecosystem != Ecosystem.IMAGE and before.version == now.version
        server.packages.filter(state=PinState.PREVIOUS).delete()
        _move(before, PinState.PREVIOUS)
        _move(now, PinState.PINNED, actor=actor, user=user)
        _note(trail, AuditAction.PACKAGE_REPIN if same else AuditAction.PACKAGE_UPDATE, server, before, now)
        _restart(server)
    return now


def go_back(actor: Actor, user: access.User, server: Server, integrity: str) -> PinnedPackage:
    """Return to the version before the last update, which the page showed with this hash. The newer one is offered
    again."""
    _require(actor, user, server)
    with audited(actor) as trail:
        now, before = _locked(server, PinState.PREVIOUS), _locked(server, PinState.PINNED)
        if now is None or before is None or now.integrity != integrity:
            raise StaleConfirmation
        server.packages.filter(state=PinState.OFFERED).delete()
        _move(before, PinState.OFFERED)
        _move(now, PinState.PINNED, actor=actor, user=user)
        _note(trail, AuditAction.PACKAGE_BACK, server, before, now)
        _restart(server)
    return now


def request_check(actor: Actor, user: access.User, server: Server) -> bool:
    """Ask a worker to compare the pin with the registry. False while nothing is pinned."""
    _require(actor, user, server)
    with audited(actor) as trail:
        found = _request(server.packages.filter(state=PinState.PINNED), "check")
        if found:
            trail.note(AuditAction.PACKAGE_CHECK, ServerRef.of(server), server.name, {"what": "registry"})
    return found


def request_comparison(actor: Actor, user: access.User, server: Server, integrity: str) -> bool:
    """Ask a worker to start the offered version separately and compare its tools. Runs the package, hence the
    permission."""
    _require(actor, user, server)
    with audited(actor) as trail:
        offered = server.packages.filter(state=PinState.OFFERED, integrity=integrity)
        row = offered.first()
        if row is None or not _request(offered, "compare"):
            raise StaleConfirmation
        trail.note(AuditAction.PACKAGE_CHECK, ServerRef.of(server), server.name, {"what": "tools"} | Pin.of(row).plain)
    return True


def _request(rows: Any, what: str) -> bool:
    return bool(rows.update(**{f"{what}_requested_at": timezone.now()}))


def _require(actor: Actor, user: access.User, server: Server) -> None:
    for permission in PERMISSIONS:
        permissions.require(user, actor, permission, server)


def _locked(server: Server, state: PinState) -> PinnedPackage | None:
    asked = requested(server)
    return server.packages.select_for_update().filter(state=state, requested=asked).first()


def _move(row: PinnedPackage, state: PinState, *, actor: Actor | None = None, user: Any = None) -> None:
    row.state = state
    for name, value in (_UNCHECKED | ({} if state == PinState.OFFERED else _UNCOMPARED)).items():
        setattr(row, name, value)
    if actor is not None:
        row.pinned_at, row.pinned_by_id, row.pinned_name = timezone.now(), user.pk, actor.name
    row.save()


def _note(trail: Trail, action: AuditAction, server: Server, before: PinnedPackage, now: PinnedPackage) -> None:
    details = {"before": Pin.of(before).plain, "after": Pin.of(now).plain}
    trail.note(action, ServerRef.of(server), now.name, details)


def _restart(server: Server) -> None:
    change = AuditAction.SERVER_CHANGE
    send = partial(server_changed.send_robust, sender=Server, server_uid=server.uid, change=change, reconnect=True)
    transaction.on_commit(send, robust=True)


# --- by copying or importing a registration
# ------------------------------------------------------------------------------
def carry_over_pin(trail: Trail, server: Server, pin: Pin, user: access.User) -> None:
    """The pin that an import or the original of a copy carries, for a server that has none. In the caller's transaction."""
    if pin.requested != requested(server) or row_of(server) is not None:
        return
    server.packages.all().delete()
    PinnedPackage.objects.create(
        server=server,
        state=PinState.PINNED,
        pinned_at=timezone.now(),
        pinned_by_id=user.pk,
        pinned_name=trail.actor.name,
        **pin.columns(),
    )
    trail.note(AuditAction.PACKAGE_PIN, ServerRef.of(server), pin.name, pin.plain)
