"""Any bytes and any order of messages against the core as a state machine. Only McpError escapes, every request ends
exactly once, states follow the tables, and memory is bounded."""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from sessions.mcp.core import input_requests, methods
from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.correlation import Pending
from sessions.mcp.core.errors import McpError, TooManyPending
from sessions.mcp.core.events import LateAnswer, ProtocolViolation
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.session import Answered, Outgoing, Session
from sessions.mcp.core.state import TABLES, IllegalTransition, State, Trigger
from sessions.mcp.core.versions import REVISIONS
from tests.tools.examples import examples

LIMITS = Limits(message_bytes=2_000, depth=8, pending_requests=6, message_values=200, batch_messages=5)
OFFERED = {"sampling": {}, "elicitation": {"form": {}}, "roots": {}}

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
METHODS = (
    *(value for name, value in vars(methods).items() if name.isupper() and isinstance(value, str)),
    input_requests.ELICIT, input_requests.SAMPLE, input_requests.LIST_ROOTS, input_requests.ELICITED, "notifications/tasks/status", "x", "",
)  # fmt: skip
#: members that the core reads, with arbitrary values
PARAMS = (
    "requestId", "progressToken", "progress", "total", "message", "level", "logger", "data", "uri", "_meta", "mode",
    "url", "elicitationId", "requestedSchema", "messages", "tools", "toolChoice", "includeContext", "task", "taskId",
    "status", "subscriptionId", "notifications", "io.modelcontextprotocol/subscriptionId",
)  # fmt: skip
params = values | st.dictionaries(st.sampled_from(PARAMS), values, max_size=5)
ids = st.integers(-1, 12) | st.sampled_from(["1", "2", "3", "probe-1", ""]) | scalars


def written(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")


class Core(RuleBasedStateMachine):
    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.session = Session(Implementation("test", "1"), OFFERED, LIMITS)
        self.open: set[int] = set()
        self.ended: set[int] = set()
        self.number: dict[int, Pending] = {}

    # -- client actions

    @rule(target=requests, method=st.sampled_from(METHODS), wants_progress=st.booleans())
    def ask(self, method: str, wants_progress: bool) -> Any:
        try:
            pending, outgoing = self.session.request(method, {}, tag=method, wants_progress=wants_progress)
        except TooManyPending:
            assert len(self.open) == LIMITS.pending_requests
            return multiple()
        assert json.loads(outgoing.data)["id"] == pending.id
        self.open.add(id(pending))
        self.number[id(pending)] = pending  # keeps it alive, because its id() identifies it here
        return pending

    @rule(pending=consumes(requests), late=st.booleans())
    def give_up(self, pending: Pending, late: bool) -> None:
        self.session.give_up(pending, late_answer=late)
        self.open.discard(id(pending))

    @rule(revision=st.sampled_from([None, *REVISIONS.values()]))
    def settle(self, revision: Any) -> None:
        self.session.settle(revision)

    @rule(trigger=st.sampled_from(Trigger))
    def move(self, trigger: Trigger) -> None:
        table, before = TABLES[self.session.era], self.session.state
        try:
            changed = self.session.move(trigger)
        except IllegalTransition:
            assert (before, trigger) not in table
            assert self.session.state is before
        else:
            assert self.session.state is table[before, trigger]
            assert bool(changed) == (before is not self.session.state)

    @rule()
    def lose(self) -> None:
        for pending in self.session.drain():
            self._end(pending)
        assert self.open == set()

    # -- server actions

    @rule(data=st.binary(max_size=200))
    def bytes_arrive(self, data: bytes) -> None:
        self._receive(data)

    @rule(identity=ids, result=st.just({}) | values, key=st.sampled_from(["result", "error"]))
    def an_answer_arrives(self, identity: Any, result: Any, key: str) -> None:
        self._check_id(identity, self._receive(written({"jsonrpc": "2.0", "id": identity, key: result})))

    @rule(identity=ids, code=st.integers(), data=values)
    def an_error_arrives(self, identity: Any, code: int, data: Any) -> None:
        error = {"code": code, "message": "m", "data": data}
        self._check_id(identity, self._receive(written({"jsonrpc": "2.0", "id": identity, "error": error})))

    def _check_id(self, identity: Any, inputs: list[Any]) -> None:
        for item in inputs:
            if isinstance(item, Answered):
                assert type(identity) in (int, str, float)
                assert identity in (item.pending.id, str(item.pending.id))

    @rule(token=ids, progress=values, total=values, message=values)
    def progress_arrives(self, **params: Any) -> None:
        params["progressToken"] = params.pop("token")
        message = {"jsonrpc": "2.0", "method": methods.PROGRESS, "params": params}
        assert not any(isinstance(item, Answered) for item in self._receive(written(message)))

    @rule(method=st.sampled_from(METHODS), params=params, identity=st.none() | ids)
    def a_call_arrives(self, method: str, params: Any, identity: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self._receive(written(message if identity is None else {**message, "id": identity}))

    @rule(pending=requests, again=st.booleans(), written_as=st.sampled_from([int, str, float]))
    def the_right_answer_arrives(self, pending: Pending, again: bool, written_as: Any) -> None:
        message = {"jsonrpc": "2.0", "id": written_as(pending.id), "result": {}}
        before = id(pending) in self.open
        inputs = self._receive(written([message, message] if again else message))
        answered = [item.pending for item in inputs if isinstance(item, Answered)]
        assert answered == ([pending] if before else [])
        if again:
            assert any(isinstance(item, (ProtocolViolation, LateAnswer)) for item in inputs)

    @rule(
        pending=requests,
        kind=st.sampled_from(["0{}".format, "{}.0".format, lambda number: [number], lambda number: number == 1]),
    )
    def nearly_the_right_id_arrives(self, pending: Pending, kind: Any) -> None:
        before = set(self.open)
        self._check_id(None, self._receive(written({"jsonrpc": "2.0", "id": kind(pending.id), "result": {}})))
        assert self.open == before

    @rule(pending=requests, junk=st.sampled_from([b"NaN", b"}", b"\xff", b"[" * 20, b'"\\ud800"', b"{}{}"]))
    def an_unreadable_answer_arrives(self, pending: Pending, junk: bytes) -> None:
        before = id(pending) in self.open
        self._receive(b'{"jsonrpc":"2.0","id":%d,"result":{"a":%b}}' % (pending.id, junk))
        assert id(pending) not in self.open
        assert not before or id(pending) in self.ended

    def _receive(self, data: bytes) -> list[Any]:
        """Receive as client/pump.py does on a duplex stream."""
        try:
            inputs = self.session.receive(data)
        except McpError:
            pending = self.session.attribute(data)
            if pending is not None:
                self._end(pending)
            return []
        for item in inputs:
            if isinstance(item, Answered):
                assert (item.result is None) != (item.error is None)
                self._end(item.pending)
            elif isinstance(item, Outgoing):
                json.loads(item.data)
        return inputs

    def _end(self, pending: Pending) -> None:
        assert id(pending) in self.open, "ended twice, or after it was given up"
        self.open.remove(id(pending))
        self.ended.add(id(pending))

    @invariant()
    def in_flight_is_what_is_open(self) -> None:
        assert self.session.in_flight == len(self.open) <= LIMITS.pending_requests
        assert isinstance(self.session.state, State)


Core.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=40)
TestCore = Core.TestCase
