"""Classifies a result: complete, a task, or a request for input that must be answered first.

Source: 2026-07-28 *Multi Round-Trip Requests*. The state that a server wants back is opaque: we never read it, never
log it, and never keep it longer than its call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from . import methods
from .capabilities import elicitation_modes
from .errors import Fault, ProtocolError, RpcError
from .limits import Limits
from .tasks import announces, declares_extension
from .versions import Era, Revision

ResultKind = Literal["complete", "input_required", "task"]

#: 2025-11-25: the call can continue after a user has visited the URLs that the error names
URL_ELICITATION: Final = -32042

#: the only methods whose result may request input
ASKING_BACK: Final = frozenset({methods.TOOLS_CALL, methods.PROMPTS_GET, methods.RESOURCES_READ})

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


def check_result(
    result: Mapping[str, Any],
    method: str,
    revision: Revision,
    declared: Mapping[str, Any],
    *,
    wants_task: bool = False,
) -> ResultKind:
    """The kind of a result. ProtocolError (invalid_result) if the kind is unknown or not allowed here.

    `declared`: our capabilities in force. `wants_task`: the request asked for a task (2025-11-25).
    """
    if revision.era is Era.LEGACY:
        may_be = revision.core_tasks and method == methods.TOOLS_CALL
        return "task" if may_be and announces(result, asked_for=wants_task) else "complete"
    kind = result.get("resultType", "complete")
    if kind == "complete":
        return "complete"
    if kind == "input_required" and method in ASKING_BACK:
        return "input_required"
    if (
        kind == "task"
        and method in (methods.TOOLS_CALL, methods.TASKS_GET)  # servers mark task states with this kind, too
        and declares_extension(declared)
    ):
        return "task"
    if kind in ("input_required", "task"):
        raise ProtocolError(Fault.INVALID_RESULT, f"The server answered {method} with {kind}, which is not allowed.")
    raise ProtocolError(Fault.INVALID_RESULT, f"The result has the unknown type {str(kind)[:40]!r}.")


@dataclass(frozen=True, slots=True)
class Question:
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class InputRequired:
    """One round: the questions by key, the state for the next attempt, and seconds to pause if there is no question."""

    questions: dict[str, Question]
    state: str | None = field(repr=False)
    pause: float = 0.0

    def params(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters that the next attempt adds to its own: these answers and this state, nothing from older rounds."""
        added: dict[str, Any] = {"inputResponses": dict(answers)} if self.questions else {}
        return added if self.state is None else added | {"requestState": self.state}


class Rounds:
    """Counts the rounds of one call."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.taken = 0
        self._silent = 0

    def take(self, result: Mapping[str, Any]) -> InputRequired:
        """The next round; ProtocolError (round_limit, server_request_limit, invalid_result)."""
        self.taken += 1
        if self.taken > self._limits.rounds:
            raise _limit(Fault.ROUND_LIMIT, f"The server asked for input more than {self._limits.rounds} times.")
        questions, state = self._questions(result.get("inputRequests")), self._state(result.get("requestState"))
        if not questions and state is None:
            raise _invalid("it names neither input nor a state")
        self._silent = 0 if questions else self._silent + 1
        pause = min(_FIRST_PAUSE * 2 ** (self._silent - 1), _LONGEST_PAUSE) if self._silent else 0.0
        return InputRequired(questions, state, pause)

    def _state(self, state: Any) -> str | None:
        if state is None:
            return None
        if not isinstance(state, str):
            raise _invalid("its state is not a string")
        if len(state.encode()) > self._limits.request_state_bytes:
            limit = self._limits.request_state_bytes
            raise _limit(Fault.ROUND_LIMIT, f"The state of a request for input exceeds the limit of {limit} bytes.")
        return state

    def _questions(self, value: Any) -> dict[str, Question]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise _invalid("its requests are not an object")
        limit = self._limits.open_server_requests
        if len(value) > limit:
            raise _limit(Fault.SERVER_REQUEST_LIMIT, f"The server sent more than {limit} requests for input at once.")
        return {key: question(entry) for key, entry in value.items()}


def question(entry: Any) -> Question:
    """ProtocolError (invalid_result) if `entry` is not a valid request for input."""
    method = entry.get("method") if isinstance(entry, dict) else None
    params = entry.get("params", {}) if isinstance(entry, dict) else None
    if not isinstance(method, str) or not isinstance(params, dict):
        raise _invalid("one of its requests has no method or no parameters")
    return Question(method, params)


def _invalid(why: str) -> ProtocolError:
    return ProtocolError(Fault.INVALID_RESULT, f"The server asks for input, but {why}.")


def _limit(fault: Fault, detail: str) -> ProtocolError:
    return ProtocolError(fault, detail)


@dataclass(frozen=True, slots=True)
class Visit:
    """A URL that a user has to visit before a call can continue (2025-11-25, error -32042)."""

    elicitation_id: str
    params: dict[str, Any]


def visits(error: RpcError, revision: Revision, declared: Mapping[str, Any], limits: Limits) -> tuple[Visit, ...]:
    """The URLs that the error asks the user to visit. Empty for an ordinary error."""
    if error.code != URL_ELICITATION or not revision.core_tasks or "url" not in elicitation_modes(declared):
        return ()
    entries = error.data.get("elicitations") if isinstance(error.data, dict) else None
    if not isinstance(entries, list) or len(entries) > limits.open_server_requests:
        return ()
    found = tuple(_visit(entry) for entry in entries)
    return tuple(visit for visit in found if visit) if all(found) else ()


def _visit(entry: Any) -> Visit | None:
    if not isinstance(entry, dict) or entry.get("mode", "url") != "url":
        return None
    identity, url = entry.get("elicitationId"), entry.get("url")
    if not isinstance(identity, str) or not isinstance(url, str):
        return None
    return Visit(identity, {**entry, "mode": "url"})
