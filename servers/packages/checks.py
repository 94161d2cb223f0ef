"""Comparisons of pins with the registry: which are due, and what they found. All run in workers."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q
from django.utils import timezone

from servers import instance
from servers.enums import PinState
from servers.models import PinnedPackage, Server
from servers.packages import locks
from servers.packages.pins import Pin, note_changed

#: at most this many checks are requested per scheduled message
AT_ONCE = 20
#: a check that takes longer is assumed to have lost its worker
GIVEN_UP = timedelta(minutes=15)
#: fraction of the interval over which checks are spread
SPREAD = 0.2
CHECK, COMPARE = "check", "compare"


def request_due() -> list[tuple[UUID, str]]:
    """Request the checks that are due, and request again those that lost their worker. Returns the servers with their
    worker labels."""
    now, hours = timezone.now(), settings.PACKAGE_CHECK_HOURS
    rows = PinnedPackage.objects.filter(state=PinState.PINNED, server__enabled=True, server__archived_at=None)
    lost = rows.filter(check_requested_at__lt=now - GIVEN_UP)
    found = list(lost[:AT_ONCE])
    if hours > 0:
        before = now - timedelta(hours=hours) * (1 - SPREAD * random.random())  # noqa: S311  spreads load, no secret
        due = rows.filter(check_requested_at=None).filter(
            Q(checked_at__lt=before) | Q(checked_at=None, pinned_at__lt=before),
            Q(check_started_at=None) | Q(check_started_at__lt=now - GIVEN_UP),
        )
        found += due.order_by(F("checked_at").asc(nulls_first=True))[:AT_ONCE]
    found = found[:AT_ONCE]
    PinnedPackage.objects.filter(pk__in=[row.pk for row in found]).update(check_requested_at=now)
    servers = Server.objects.filter(pk__in=[row.server_id for row in found])
    return list(servers.values_list("uid", "worker_label"))


def waiting(labels: list[str]) -> list[UUID]:
    """Servers with a requested check or comparison that a worker with these labels may run."""
    if instance.is_held():
        return []
    rows = PinnedPackage.objects.filter(
        Q(state=PinState.PINNED, check_requested_at__isnull=False)
        | Q(state=PinState.OFFERED, compare_requested_at__isnull=False)
    )
    rows = rows.filter(server__worker_label__in=["", *labels], server__archived_at=None)
    return list(rows.values_list("server__uid", flat=True).distinct()[:AT_ONCE])


def claim(server_uid: UUID) -> tuple[str, int] | None:
    """Claim one request of this server, so that no other worker takes it. Returns what to do, and the server's key."""
    for what, state in ((COMPARE, PinState.OFFERED), (CHECK, PinState.PINNED)):
        rows = PinnedPackage.objects.filter(server__uid=server_uid, state=state)
        claimed = rows.filter(**{f"{what}_requested_at__isnull": False}).update(
            **{f"{what}_requested_at": None, f"{what}_started_at": timezone.now()}
        )
        if claimed:
            return what, rows.values_list("server_id", flat=True)[0]
    return None


def pinned(server_id: int, state: PinState = PinState.PINNED) -> Pin | None:
    row = PinnedPackage.objects.filter(server_id=server_id, state=state).first()
    return Pin.of(row) if row else None


def dependency_changed(server_id: int) -> bool:
    """Whether a start found changed content in a dependency of the pinned package."""
    rows = PinnedPackage.objects.filter(server_id=server_id, state=PinState.PINNED)
    return rows.exclude(changed_name__in=["", F("name")]).exists()


def checked(server_id: int, pin: Pin, *, problem: str = "", offer: Pin | None = None, same: Pin | None = None) -> bool:
    """Store what the registry offers: `same` is the pinned version as it is there now, `offer` a newer one. Returns
    whether changed content under the pinned version is news. Runs in the caller's transaction."""
    rows = PinnedPackage.objects.filter(server_id=server_id, state=PinState.PINNED, integrity=pin.integrity)
    done: dict[str, Any] = {"checked_at": timezone.now(), "check_started_at": None, "check_problem": problem[:1000]}
    if not rows.update(**done):
        return False  # another version was pinned meanwhile
    if problem:
        return False
    news = False
    if same is not None and same.integrity != pin.integrity:
        news = note_changed(server_id, pin, pin.name, same.integrity)
        offer = offer or same
    elif same is not None:
        rows.filter(changed_name=F("name")).update(changed_integrity="", changed_name="")
    if offer is not None and _is_repaired(rows.exclude(changed_name=F("name")).first(), offer):
        rows.update(changed_integrity="", changed_name="")
        offer = None if _is_as_pinned(offer, pin) else offer
    _offer(server_id, offer)
    return news


def _is_repaired(row: PinnedPackage | None, offer: Pin) -> bool:
    """Whether the registry has the pinned content of the changed dependency again."""
    if row is None or not row.changed_name:
        return False
    return locks.has_same(row.ecosystem, row.lock, offer.lock, row.changed_name)


def _is_as_pinned(offer: Pin, pin: Pin) -> bool:
    same = replace(pin, lock="", dependencies=0) == replace(offer, lock="", dependencies=0)
    return same and not locks.difference(pin.ecosystem, pin.lock, offer.lock, pin.name).count


def _offer(server_id: int, offer: Pin | None) -> None:
    rows = PinnedPackage.objects.filter(server_id=server_id, state=PinState.OFFERED)
    known = rows.first()
    if (
        known is not None
        and offer is not None
        and replace(Pin.of(known), lock="", dependencies=0) == replace(offer, lock="", dependencies=0)
    ):
        return
    rows.delete()
    if offer is not None:
        PinnedPackage.objects.create(
            server_id=server_id, state=PinState.OFFERED, pinned_at=timezone.now(), **offer.columns()
        )


def compared(server_id: int, offer: Pin, *, problem: str = "", tools: dict[str, Any] | None = None) -> None:
    rows = PinnedPackage.objects.filter(server_id=server_id, state=PinState.OFFERED, integrity=offer.integrity)
    rows.update(compared_at=timezone.now(), compare_started_at=None, compare_problem=problem[:1000], tools=tools or {})
