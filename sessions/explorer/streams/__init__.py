"""The streams of rows that the explorer merges: calls, audit events that are not steps of a call, log lines, messages.

A stream is a table whose key rises with time. It is read in the order of its key, from an index that a condition of the
query picks (an *arm*), and never with OFFSET over rows. What a person may see is decided here, by `servers.access`
alone.
"""

from servers.audit import query as audit
from servers.enums import ActionSource, AuditAction, AuditOutcome
from sessions.enums import CallState, LogSource, WireKind
from sessions.explorer.language import CHOICES, RENAMED, USUAL, Query
from sessions.explorer.streams.calls import METHODS, OUTCOME_OF_STATE, Calls, tag
from sessions.explorer.streams.events import Events, Steps, names_steps
from sessions.explorer.streams.session_logs import Logs, Messages, OfSessions
from sessions.explorer.streams.stream import (
    ARMS,
    NOTHING,
    OUTCOMES,
    Arm,
    Stream,
    among,
    any_of,
    deleted_servers,
    only_own,
    plain,
    present_names,
    servers,
)

__all__ = [
    "ARMS",
    "METHODS",
    "NOTHING",
    "OUTCOMES",
    "OUTCOME_OF_STATE",
    "STEPS",
    "STREAMS",
    "Arm",
    "Calls",
    "OfSessions",
    "Stream",
    "among",
    "any_of",
    "chosen",
    "deleted_servers",
    "only_own",
    "plain",
    "present_names",
    "servers",
    "tag",
]

CHOICES["outcome"] = {name: words for name, (words, _) in OUTCOMES.items()}
CHOICES["way"] = {way.value: str(way.label) for way in ActionSource if way != ActionSource.SCHEDULE}  # no row has it
CHOICES["status"] = {**dict(CallState.choices), **dict(AuditOutcome.choices)}
CHOICES["kind"] = {
    **{kind: kind.capitalize() for kind in METHODS},
    **{name: label for name, (label, _) in audit.GROUPS.items() if name != "calls"},
    **{source.value: str(source.label) for source in LogSource},
    **{kind.value: str(kind.label) for kind in WireKind},
    **{action.value: str(action.label) for action in AuditAction},
}
RENAMED["kind"] = audit.RENAMED

STREAMS: dict[str, Stream] = {stream.name: stream for stream in (Calls(), Events(), Logs(), Messages())}
STEPS = Steps()


def chosen(query: Query) -> list[Stream]:
    """The streams that `query` reads."""
    found = [stream for name, stream in STREAMS.items() if name in (query.streams or USUAL)]
    return [STEPS if stream.name == Events.name and names_steps(query) else stream for stream in found]
