"""The log of a server as its page shows it: filtered by level, source and text, the newest lines at the end."""

from dataclasses import dataclass

from django.db.models import Max, Q

from servers.models import Server
from servers.storable import storable
from sessions.enums import LogSource
from sessions.mcp.core.methods import LOG_LEVELS
from sessions.models import LogLine

SHOWN = 200
TEXT_CHARS = 200
LEVELS = list(LOG_LEVELS)


@dataclass(frozen=True)
class LogFilter:
    """Unknown values do not filter."""

    level: str = ""
    source: str = ""
    text: str = ""

    @classmethod
    def of(cls, level: str, source: str, text: str) -> "LogFilter":
        kept = source if source in LogSource.values else ""
        return cls(level if level in LEVELS else "", kept, storable(text.strip(), TEXT_CHARS))

    def __bool__(self) -> bool:
        return bool(self.level or self.source or self.text)

    def query(self) -> Q:
        found = Q()
        if self.level:
            found &= Q(level__in=levels_from(self.level))
        if self.source:
            found &= Q(source=self.source)
        if self.text:
            found &= Q(text__icontains=self.text) | Q(logger__icontains=self.text)
        return found


@dataclass(frozen=True)
class LogPage:
    """`lines`: oldest first. `head`: the newest line of all, from which live updates continue. `older`: cursor to go
    back."""

    lines: list[LogLine]
    head: int
    older: int | None
    latest: bool


def log_page(server: Server, chosen: LogFilter, before: int | None) -> LogPage:
    """Only lines up to the head, which is read first, so that live updates neither repeat nor miss a line."""
    lines = server.log_lines.filter(identity=server.seen_as)
    head = lines.aggregate(newest=Max("seq"))["newest"] or 0
    end = head if before is None else min(head, before - 1)
    rows = lines.filter(chosen.query(), seq__lte=end).order_by("-seq")
    found = list(rows[: SHOWN + 1])
    older = found[SHOWN - 1].seq if len(found) > SHOWN else None
    return LogPage(found[:SHOWN][::-1], head, older, before is None)


def levels_from(level: str) -> list[str]:
    """`level` and all that are more severe, in the order of RFC 5424; all levels for an unknown one."""
    return LEVELS[LEVELS.index(level) :] if level in LEVELS else LEVELS
