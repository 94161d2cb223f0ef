"""What the card of a call shows: its outcome in words, its result block by block, each within a bound.

Everything of the result is hostile: this file only sorts and cuts, the templates escape.
"""

import json
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from servers.audit import payloads
from servers.models import Payload
from sessions.domain import call_rows
from sessions.domain.call_outcome import Outcome, outcome_of
from sessions.domain.operations import Words, words_of
from sessions.domain.result_views import View, view_of
from sessions.enums import CallState
from sessions.models import Call, LogLine

#: a larger result is shown as the beginning of its text only
PARSED_BYTES = 2 * 1024 * 1024
RAW_CHARS = 200_000
_LINES_LOOKED_AT = 200


@dataclass(frozen=True)
class Result:
    """`cut` when `raw` is only the beginning."""

    size: int
    raw: str
    cut: bool
    view: View = field(default_factory=lambda: View("Content", []))


@dataclass(frozen=True)
class Card:
    """`call` is without the server's own words for who may not read them: templates show those of this one only."""

    call: Call
    outcome: Outcome | None
    result: Result | None
    erased: bool
    hidden: bool
    late: bool
    lines: list[LogLine]
    brief: bool

    @property
    def words(self) -> Words:
        return words_of(self.call.method)

    @property
    def running(self) -> bool:
        return not CallState(self.call.state).final

    @property
    def waiting(self) -> bool:
        return self.call.state == CallState.REQUESTED

    @property
    def without_worker(self) -> bool:
        return self.waiting and self.call.session is not None and self.call.session.owner_id is None

    @property
    def repeatable(self) -> bool:
        return not self.running and self.call.server_id is not None

    @property
    def percent(self) -> int | None:
        done, total = self.call.progress, self.call.progress_total
        return None if done is None or not total or total <= 0 else max(0, min(100, round(100 * done / total)))

    @property
    def duration_ms(self) -> float | None:
        if self.call.finished_at is None:
            return None
        return (self.call.finished_at - (self.call.sent_at or self.call.created_at)).total_seconds() * 1000


def card_of(call: Call, *, may_read: bool, brief: bool = False) -> Card:
    """`brief` leaves out everything but the beginning of the text: for results whose markup would be too large."""
    payload = call.result or call.late_result
    readable = payload is not None and may_read and payload.erased_at is None
    shown = call if may_read else without_words(call)
    return Card(
        call=shown,
        outcome=outcome_of(shown),
        result=_result(call, payload, brief) if readable and payload is not None else None,
        erased=payload is not None and payload.erased_at is not None,
        hidden=not may_read and (payload is not None or bool(call.error_message or call.error_data)),
        late=call.late_result is not None,
        lines=call_lines(call),
        brief=brief,
    )


def without_words(call: Call) -> Call:
    """A copy without what the server said in this call besides its result: that too came out of it."""
    other = copy(call)
    other.error_message = other.error_data = other.progress_message = other.schema_violation = ""
    return other


def _result(call: Call, payload: Payload, brief: bool) -> Result:
    text = payloads.read(payload) or ""
    value = _parsed(text) if payload.size <= PARSED_BYTES and not brief else None
    if not isinstance(value, dict):
        return Result(payload.size, text[:RAW_CHARS], len(text) > RAW_CHARS)
    pretty = json.dumps(value, indent=2, ensure_ascii=False)
    view = view_of(call.method, call.target, value)
    return Result(size=payload.size, raw=pretty[:RAW_CHARS], cut=len(pretty) > RAW_CHARS, view=view)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def call_lines(call: Call) -> list[LogLine]:
    """The log lines of a call, among the newest of its server: an index read of bounded length."""
    if call.server_id is None or (call.personal and call.identity_id is None) or call.sent_at is None:
        return []
    return call_rows.lines(call, _LINES_LOOKED_AT)
