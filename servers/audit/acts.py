"""`audited()`: an administrative action and its events in one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from servers.audit.record import Actor, Event, ServerRef, acting, record_many
from servers.enums import AuditAction, AuditOutcome


@dataclass
class Trail:
    """Collects what a block does. Nothing is appended before the end of the block."""

    actor: Actor
    events: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        self.events.append(event)

    def note(
        self, action: AuditAction, server: ServerRef | None, subject: str = "", details: dict[str, Any] | None = None
    ) -> None:
        """Add a successful action of this trail's actor."""
        self.add(Event(action, AuditOutcome.OK, self.actor, server, subject=subject, details=details or {}))


@contextmanager
def audited(actor: Actor) -> Iterator[Trail]:
    """One transaction around the block; its events are appended last, so that the chain's head is locked only briefly.

    When the block raises, it is rolled back with its events, except those whose outcome is *denied*: they are committed
    on their own.
    """
    trail = Trail(actor)
    try:
        with transaction.atomic():
            with acting(actor):
                yield trail
            record_many([event for event in trail.events if event.outcome != AuditOutcome.DENIED])
    finally:
        if denied := [event for event in trail.events if event.outcome == AuditOutcome.DENIED]:
            with transaction.atomic(durable=True):
                record_many(denied)
