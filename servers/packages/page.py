"""What pages show about a server's package."""

from dataclasses import dataclass, replace

from django.conf import settings
from django.utils import timezone

from servers.enums import Ecosystem, PinState, TransportKind
from servers.models import PinnedPackage, Server
from servers.packages import commands, locks
from servers.packages.checks import GIVEN_UP
from servers.packages.commands import PackageCommand, Unpinnable

_NO_CHANGES = locks.LockDifference([], [], [], [])


@dataclass(frozen=True)
class PackageHead:
    """What the header of a server's page says. If `command` is None, `reason` says why the package cannot be pinned."""

    command: PackageCommand | None
    reason: str = ""
    pinned: PinnedPackage | None = None
    previous: PinnedPackage | None = None
    offer: PinnedPackage | None = None
    #: whether the program may be in the working directory, which only a worker can see
    may_be_in_project: bool = False

    @property
    def changed(self) -> bool:
        """Whether the registry offers different content under the pinned version."""
        return self.pinned is not None and bool(self.pinned.changed_integrity or self.pinned.changed_name)

    @property
    def is_repin(self) -> bool:
        """Whether the offer has the version that is already pinned: a repaired release, or a compromised one."""
        pinned, offer = self.pinned, self.offer
        same = pinned is not None and offer is not None and pinned.version == offer.version
        return same and offer is not None and offer.ecosystem != Ecosystem.IMAGE

    @property
    def update(self) -> bool:
        return self.offer is not None and not self.is_repin


@dataclass(frozen=True)
class PackagePage(PackageHead):
    difference: locks.LockDifference = _NO_CHANGES
    unverified: int = 0
    checking: bool = False
    comparing: bool = False

    @property
    def pending(self) -> bool:
        return self.checking or self.comparing

    @property
    def check_hours(self) -> float:
        return float(settings.PACKAGE_CHECK_HOURS)


def head(server: Server) -> PackageHead | None:
    """The header; None for a server without a launcher. One query for the others."""
    if server.transport != TransportKind.STDIO:
        return None
    try:
        command = commands.read(server.command, server.arguments)
    except Unpinnable as problem:
        return PackageHead(None, str(problem))
    if command is None:
        return None
    rows = server.packages.filter(requested=command.requested).select_related("pinned_by")
    found = {row.state: row for row in rows.defer("lock", "tools")}
    return PackageHead(
        command,
        "",
        found.get(PinState.PINNED),
        found.get(PinState.PREVIOUS),
        found.get(PinState.OFFERED),
        may_be_in_project=bool(server.working_directory) and command.is_project_first,
    )


def page(server: Server) -> PackagePage | None:
    found = head(server)
    if found is None:
        return None
    shown = PackagePage(found.command, found.reason, found.pinned, found.previous, found.offer, found.may_be_in_project)
    if shown.pinned is None:
        return shown
    pinned, offer = shown.pinned, shown.offer
    compared = locks.difference(pinned.ecosystem, pinned.lock, offer.lock, pinned.name) if offer else _NO_CHANGES
    return replace(
        shown,
        difference=compared,
        unverified=locks.unverified(pinned.ecosystem, pinned.lock),
        checking=_runs(pinned, "check"),
        comparing=offer is not None and _runs(offer, "compare"),
    )


def _runs(row: PinnedPackage, what: str) -> bool:
    """Whether it was requested or started, and has not been given up."""
    since = [at for at in (getattr(row, f"{what}_requested_at"), getattr(row, f"{what}_started_at")) if at is not None]
    return any(at > timezone.now() - GIVEN_UP for at in since)
