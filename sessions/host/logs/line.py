"""Lines of a server's log before they are numbered."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from servers.storable import storable
from sessions.enums import LogSource
from sessions.models import LogLine

LINE_CHARS, LOGGER_CHARS = 8_000, 200
LEVELS = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})


@dataclass(frozen=True, slots=True)
class ServerLogLine:
    source: LogSource
    level: str
    text: str
    logger: str = ""
    call_uid: UUID | None = None
    at: datetime = field(default_factory=timezone.now)

    def cut(self) -> "ServerLogLine":
        """The line, truncated to what is stored."""
        return replace(self, text=self.text[:LINE_CHARS], logger=self.logger[:LOGGER_CHARS])

    def row(self, log_key: Mapping[str, int | None], seq: int) -> LogLine:
        return LogLine(
            **log_key,
            seq=seq,
            at=self.at,
            source=self.source,
            level=self.level if self.level in LEVELS else "info",
            logger=storable(self.logger, LOGGER_CHARS),
            text=storable(self.text, LINE_CHARS),
            call_uid=self.call_uid,
        )


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Lines on their way to the database. `shed` lines were dropped before them; `to_write` are `lines` plus the line
    that says so."""

    lines: list[ServerLogLine]
    shed: int
    to_write: list[ServerLogLine]

    @property
    def count(self) -> int:
        return len(self.lines)
