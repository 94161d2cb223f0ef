"""The result of the last read of a server's lists: written by the host, shown on every tab with a list."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils.dateparse import parse_datetime

from servers import limits
from servers.audit.record import SYSTEM, Event
from servers.definitions.versions import Counts
from servers.enums import AuditAction, AuditOutcome, DefinitionKind
from servers.models import Server
from servers.storable import storable
from sessions.connections import lifecycle
from sessions.connections.diagnosis import LIMITS_OF, Explanation, explain
from sessions.connections.lifecycle import Lease, held
from sessions.mcp.core.errors import Fault
from sessions.models import McpSession

NAMES, NAME_CHARS, PROBLEM_CHARS = 20, 100, 500
#: stored per list for its tab
WARNINGS = 20
PLURALS = {
    DefinitionKind.TOOL: "tools",
    DefinitionKind.RESOURCE: "resources",
    DefinitionKind.RESOURCE_TEMPLATE: "resource templates",
    DefinitionKind.PROMPT: "prompts",
}


@dataclass(frozen=True)
class Note:
    """The result for one list. `problem` and its `fault`: why it could not be read; then the previous result stays,
    including its counts."""

    at: datetime
    counts: Counts = Counts()
    problem: str = ""
    fault: str = ""
    warnings: tuple[str, ...] = ()
    cut: tuple[str, str] | None = None

    def wire(self, before: Mapping[str, Any]) -> dict[str, Any]:
        if self.problem:
            words = storable(self.problem, PROBLEM_CHARS)
            return dict(before) | {"problem": words, "fault": self.fault, "failed_at": self.at.isoformat()}
        counts = self.counts
        numbers = {"added": counts.added, "changed": counts.changed, "removed": counts.removed}
        warnings = [storable(warning, PROBLEM_CHARS) for warning in self.warnings[:WARNINGS]]
        return numbers | {"first": "read_at" not in before, "read_at": self.at.isoformat(), "warnings": warnings}


def note(
    lease: Lease,
    request_number: int | None,
    notes: Mapping[DefinitionKind, Note],
    read: Collection[DefinitionKind],
    stale_at: datetime | None,
) -> bool:
    """Record the read of the lists `read`. `notes` are the results of all lists since the session opened. `request_number`: the
    number of the refresh request that this fulfils; None while other lists of that request are still being read.
    """
    before = held(lease).values_list("catalog_counts", flat=True).first()
    if before is None:
        return False
    counts = before | {kind.value: notes[kind].wire(before.get(kind.value) or {}) for kind in read}
    notes = {kind: one for kind, one in notes.items() if kind in read or kind.value in before}
    times = [one.at for one in notes.values() if not one.problem]
    warnings = [warning for one in notes.values() for warning in one.warnings]
    warnings += [_unlisted(kind, one) for kind, one in notes.items() if one.problem]
    cuts = {kind.value: list(one.cut) for kind, one in notes.items() if one.cut}
    more: dict[str, Any] = {"catalog_counts": counts, "catalog_stale_at": stale_at}
    if times and request_number is not None:
        more["catalog_read_at"] = max(times)
    return lifecycle.catalog_read(lease, request_number, warnings, cuts, **more)


def _unlisted(kind: DefinitionKind, note: Note) -> str:
    words = f"The {PLURALS[kind]} could not be listed: {note.problem}"
    exceeded = LIMITS_OF.get(note.fault)
    return f"{words} {limits.stated(*exceeded)}" if exceeded else words


def was_read(counts: Mapping[str, Any], kind: DefinitionKind) -> bool:
    """According to a session's `catalog_counts`; an empty list counts as read."""
    return "read_at" in (counts.get(kind.value) or {})


def change_event(lease: Lease, kind: DefinitionKind, counts: Counts) -> Event:
    """`details` contain names only; the rest is in the versions."""
    named = {
        "added": counts.added_names,
        "changed": counts.changed_names,
        "removed": counts.removed_names,
        "breaking": counts.breaking_names,
    }
    return Event(
        action=AuditAction.CATALOG_CHANGE,
        outcome=AuditOutcome.OK,
        actor=SYSTEM,
        server=lease.server,
        identity_name=lease.identity_name,
        subject=f"{PLURALS[kind].capitalize()}: {change_words(counts.added, counts.changed, counts.removed)}",
        details={"kind": kind.value} | {word: _few(names) for word, names in named.items() if names},
    )


def change_words(added: int, changed: int, removed: int) -> str:
    return f"{added} added, {changed} changed, {removed} removed"


def _few(names: tuple[str, ...]) -> list[str]:
    few = [name[:NAME_CHARS] for name in names[:NAMES]]
    return few if len(names) <= NAMES else [*few, f"and {len(names) - NAMES} more"]


# --- reading -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ListProblem:
    """Why a list could not be read. `kept`: the result of an earlier read is shown."""

    what: str
    explanation: Explanation
    since: datetime | None
    kept: bool


@dataclass(frozen=True)
class ListReading:
    """What a page says about its lists. `read_at`: the oldest of the lists' last good reads. `warnings` come
    from those reads and concern these lists only."""

    words: str
    read_at: datetime | None
    problems: list[ListProblem]
    warnings: list[str] = field(default_factory=list)


def reading(
    session: McpSession | None, kinds: Iterable[DefinitionKind], server: Server | None = None
) -> ListReading | None:
    """For the lists of one page of `server`; None before the first attempt to read any of them."""
    counts = session.catalog_counts if session else {}
    known = [(kind, counts[kind.value]) for kind in kinds if isinstance(counts.get(kind.value), dict)]
    if not known:
        return None
    times = [at for _, one in known if (at := _time(one.get("read_at")))]
    problems = [
        ListProblem(
            PLURALS[kind],
            explain(one.get("fault") or Fault.INVALID_RESULT, one["problem"], server),
            _time(one.get("failed_at")),
            "read_at" in one,
        )
        for kind, one in known
        if one.get("problem")
    ]
    warnings = [warning for _, one in known for warning in one.get("warnings") or ()]
    return ListReading(_words([one for _, one in known]), min(times, default=None), problems, warnings)


def row(server: Server) -> dict[str, Any]:
    """Changes with every read, even with one that found no change or failed."""
    counts = McpSession.objects.filter(server=server, **server.identity_filter).values_list("catalog_counts", flat=True)
    times = [one.get(name) for found in counts for one in found.values() for name in ("read_at", "failed_at")]
    return {"read_at": max(filter(None, times), default=None)}


def _words(known: list[dict[str, Any]]) -> str:
    if any(one.get("first") for one in known):
        return "Loaded"
    sums = {word: sum(int(one.get(word) or 0) for one in known) for word in ("added", "changed", "removed")}
    parts = [f"{number} {word}" for word, number in sums.items() if number]
    return f"{', '.join(parts)} · checked" if parts else "Unchanged, checked"


def _time(text: Any) -> datetime | None:
    return parse_datetime(text) if isinstance(text, str) else None
