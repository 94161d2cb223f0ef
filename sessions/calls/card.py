"""What a call's card shows: its outcome in words and its result block by block, each of limited size.

Everything in the result is hostile: this file only sorts and truncates, the templates escape.
"""

import json
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from django.utils.safestring import SafeString, mark_safe

from servers.audit import payloads
from servers.crypto import SealError
from servers.models import Payload
from sessions.calls import statements
from sessions.calls.operations import OperationTexts, texts_of
from sessions.calls.outcome_words import NOT_CHECKED, OutcomeWords, late_answer_of, outcome_of
from sessions.calls.results import View, lighter, parsed, view_of
from sessions.enums import UNSENT, CallState
from sessions.mcp.core import refusals
from sessions.models import Call, LogLine

#: for larger results, the raw JSON is shown unformatted
PARSED_BYTES = 2 * 1024 * 1024
RAW_CHARS = 200_000


class Tab(NamedTuple):
    """`key` selects the template's branch: c(ontent), s(tructured), r(aw)."""

    key: str
    name: str


@dataclass(frozen=True)
class Result:
    """`cut`: `raw` is truncated. `empty`: the server returned a result with nothing in it. `late`: a notice, if it
    arrived after the end of the call."""

    size: int
    raw: str
    cut: bool
    view: View = field(default_factory=lambda: View("Content", []))
    empty: bool = False
    late: OutcomeWords | None = None

    @cached_property
    def only_text(self) -> str | None:
        """The text of a result that is only text, as most are: its block has no header and no parts to choose."""
        only = self.view.blocks[0] if len(self.view.blocks) == 1 else None
        return only.text if only is not None and only.plain else None

    @cached_property
    def tabs(self) -> list[Tab]:
        """The tabs; the first one is open."""
        content = [Tab("c", f"{self.view.name} {len(self.view.blocks)}")] if self.view.blocks else []
        structured = [Tab("s", "Structured")] if self.view.has_structured else []
        both = content + structured if self.view.blocks_first else structured + content
        return [*both, Tab("r", "Raw")]


class Violation(NamedTuple):
    """`pointer`: where the result differs (JSON Pointer); empty for the whole result."""

    pointer: str
    reason: str


@dataclass(frozen=True)
class Card:
    """For a reader without permission to read payloads, `call` lacks the server's own words. Templates must show only
    this `call`."""

    call: Call
    outcome: OutcomeWords | None
    result: Result | None
    erased: bool
    hidden: bool
    late: OutcomeWords | None
    lines: list[LogLine]
    readable: bool = False

    @cached_property
    def id(self) -> SafeString:
        """The call's uid as text, formatted once for the many attributes that contain it."""
        return mark_safe(str(self.call.uid))  # noqa: S308  # digits and dashes

    @cached_property
    def number(self) -> SafeString:
        """The primary key as text: a template would look up the format of each number."""
        return mark_safe(str(self.call.pk))  # noqa: S308  # digits

    @cached_property
    def words(self) -> OperationTexts:
        return texts_of(self.call.method)

    @cached_property
    def running(self) -> bool:
        return not CallState(self.call.state).final

    @property
    def waiting(self) -> bool:
        return self.call.state in UNSENT

    @property
    def without_worker(self) -> bool:
        return (
            self.call.state == CallState.REQUESTED
            and self.call.session is not None
            and self.call.session.owner_id is None
        )

    @property
    def repeatable(self) -> bool:
        return self.readable and not self.running and self.call.server_id is not None

    @property
    def editable(self) -> bool:
        return self.readable and self.call.server_id is not None

    @property
    def needs_attention(self) -> bool:
        """Whether there is more to say about the end than its state and result."""
        return self.outcome is not None or bool(self.call.schema_violation) or self.late is not None

    @property
    def unchecked(self) -> str:
        """Why the result could not be checked against the tool's output schema."""
        words = self.call.schema_violation
        return words.removeprefix(NOT_CHECKED) if words.startswith(NOT_CHECKED) else ""

    @property
    def violations(self) -> list[Violation]:
        """Violations of the tool's output schema, one per pointer."""
        lines = "" if self.unchecked else self.call.schema_violation
        return [
            Violation(*line.split(": ", 1)) if line.startswith("/") and ": " in line else Violation("", line)
            for line in lines.splitlines()
            if line
        ]

    @property
    def percent(self) -> int | None:
        done, total = self.call.progress, self.call.progress_total
        if done is None or not total or total <= 0:
            return None
        return round(100 * max(0.0, min(1.0, done / total)))  # a server may send numbers whose ratio is infinite

    @property
    def steps_completed(self) -> str:
        """How far the call got by its last progress notification, in numbers; empty if there was none."""
        done, total = self.call.progress, self.call.progress_total
        if done is None:
            return ""
        return f"{_progress(done)} of {_progress(total)}" if total else _progress(done)


def _progress(number: float) -> str:
    """Format a number; whole numbers, such as bytes and rows, in full."""
    return f"{number:,.0f}" if float(number).is_integer() and abs(number) < 2**53 else f"{number:.10g}"


def card_of(call: Call, *, may_read: bool, brief: bool = False) -> Card:
    """`brief`: for results whose markup would be too large. Whatever is omitted is mentioned and can be downloaded."""
    payload = call.result or call.late_result
    readable = payload is not None and may_read and payload.erased_at is None
    shown = call if may_read else without_words(call)
    result = _result(call, payload, brief) if readable and payload is not None else None
    late = None if call.late_result is None else (result and result.late) or late_answer_of(call)
    return Card(
        call=shown,
        outcome=outcome_of(shown, result.raw if result else ""),
        result=result,
        erased=payload is not None and payload.erased_at is not None,
        hidden=not may_read and (payload is not None or bool(call.error_message or call.error_data)),
        late=late,
        lines=call_lines(call) if may_read else [],
        readable=may_read,
    )


def without_words(call: Call) -> Call:
    """A copy without the server's words outside the result: they belong to the call and need the same permission."""
    other = copy(call)
    other.error_message = other.error_data = other.progress_message = other.schema_violation = ""
    other.detail = refusals.without_words(other.detail)
    return other


def _result(call: Call, payload: Payload, brief: bool) -> Result:
    try:
        text = payloads.read(payload) or ""
    except SealError as problem:
        return Result(payload.size, str(problem), cut=False)
    value = parsed(text)
    if not isinstance(value, dict):
        return Result(payload.size, text[:RAW_CHARS], len(text) > RAW_CHARS)
    late = late_answer_of(call, value) if call.result is None else None
    view = view_of(call.method, call.target, value)
    view = lighter(view) if brief else view
    # the notice about a late answer already mentions an error or a task in place of the result
    empty = not view.blocks and not view.has_structured and not (late and late.remedy)
    if brief or payload.size > PARSED_BYTES:
        return Result(payload.size, text[:RAW_CHARS], len(text) > RAW_CHARS, view, empty, late)
    pretty = json.dumps(value, indent=2, ensure_ascii=False)
    return Result(payload.size, pretty[:RAW_CHARS], len(pretty) > RAW_CHARS, view, empty, late)


def call_lines(call: Call) -> list[LogLine]:
    if call.server_id is None or (call.personal and call.identity_id is None) or call.sent_at is None:
        return []
    return statements.lines(call)
