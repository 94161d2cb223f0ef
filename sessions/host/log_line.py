"""Lines of a server's log before they have their numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from sessions.domain.lifecycle import storable
from sessions.enums import LogSource
from sessions.models import LogLine

LINE_CHARS = 8_000
LEVELS = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})


@dataclass(frozen=True, slots=True)
class Line:
    source: LogSource
    level: str
    text: str
    logger: str = ""
    call_uid: UUID | None = None
    at: datetime = field(default_factory=timezone.now)

    def row(self, ring: Mapping[str, int | None], seq: int) -> LogLine:
        return LogLine(
            **ring,
            seq=seq,
            at=self.at,
            source=self.source,
            level=self.level if self.level in LEVELS else "info",
            logger=storable(self.logger, 200),
            text=storable(self.text, LINE_CHARS),
            call_uid=self.call_uid,
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """Lines on their way to the ring; `shed` were dropped before them, which `told` says in a line of its own."""

    lines: list[Line]
    shed: int
    told: list[Line]
