"""The protocol machine of one session: messages in, inputs for the owner and messages out.

It never waits and reads no clock. The owner (sessions/client.py) feeds whole messages to `receive()` and sends
every Outgoing that comes back. See README.md for who calls what when.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from . import events, headers, jsonrpc, methods
from .capabilities import Implementation, request_meta
from .correlation import Correlation, Pending
from .errors import Fault, McpError, ProtocolError, RpcError
from .jsonrpc import Notification, Request, RequestId, Response
from .limits import Limits
from .state import State, Trigger, advance
from .versions import Era, Revision

_ID_FIRST: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,64}")\s*[,}]'
)
_ID_LAST: Final = re.compile(rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,64}")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


@dataclass(slots=True, eq=False)
class Outgoing:
    """One message to send. `id` is set for requests only, `method` is empty for responses.

    `headers` mirror a modern request on HTTP. The transport sets `left` just before the first byte may leave.
    One that gives each request a reply stream looks at `answered`, and sets `on_answered` to be woken when the
    answer came some other way.
    """

    data: bytes
    method: str = ""
    id: RequestId | None = None
    headers: dict[str, str] = field(default_factory=dict)
    left: bool = False
    answered: bool = False
    on_answered: Callable[[], None] | None = None


@dataclass(slots=True, eq=False)
class Answered:
    """The answer to a request of ours: exactly one of `result` and `error` is set."""

    pending: Pending
    result: dict[str, Any] | None
    error: McpError | None


Input = Answered | Outgoing | events.Event


class Session:
    def __init__(self, info: Implementation, capabilities: Mapping[str, Any], limits: Limits) -> None:
        self._info = info
        self._capabilities = capabilities
        self._limits = limits
        self._correlation = Correlation(limits.pending_requests)
        self._meta: dict[str, Any] = {}
        self.state = State.DISCONNECTED
        self.revision: Revision | None = None
        self.server_capabilities: dict[str, Any] = {}

    @property
    def era(self) -> Era:
        """Legacy until known better."""
        return self.revision.era if self.revision else Era.LEGACY

    @property
    def in_flight(self) -> int:
        return len(self._correlation)

    def move(self, trigger: Trigger, reason: str = "") -> list[events.Event]:
        """Change the state; the event is empty when it stays."""
        old, self.state = self.state, advance(self.era, self.state, trigger)
        return [] if old is self.state else [events.StateChanged(old, self.state, reason)]

    def settle(self, revision: Revision | None) -> None:
        """From now on speak this revision; None: forget what was settled."""
        self.revision = revision
        modern = revision is not None and revision.era is Era.MODERN
        self._meta = request_meta(revision.name, self._info, self._capabilities) if revision and modern else {}

    # -- out

    def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        tag: Any = None,
        wants_progress: bool = False,
        mirrored: tuple[headers.Mirrored, ...] = (),
        identity: RequestId | None = None,
    ) -> tuple[Pending, Outgoing]:
        """A request to send, and its entry among those in flight. InvalidRequest, TooManyPending."""
        pending = self._correlation.add(method, tag, wants_progress=wants_progress, identity=identity)
        try:
            return pending, self._outgoing(pending, method, params, mirrored)
        except McpError:
            self._correlation.drop(pending)
            raise

    def _outgoing(
        self, pending: Pending, method: str, params: dict[str, Any] | None, mirrored: tuple[headers.Mirrored, ...]
    ) -> Outgoing:
        extra: dict[str, str] = {}
        meta = {**self._meta, "progressToken": pending.id} if pending.wants_progress else self._meta
        if meta:
            params = {**(params or {}), "_meta": meta}
        if self._meta and self.revision:
            extra = headers.request_headers(method, params or {}, self.revision.name, mirrored)
        return Outgoing(self._bounded(jsonrpc.request(pending.id, method, params)), method, pending.id, extra)

    def _bounded(self, data: bytes) -> bytes:
        if len(data) > self._limits.message_bytes:
            raise ProtocolError(
                Fault.MESSAGE_LIMIT,
                f"The request of {len(data)} bytes is over the limit of {self._limits.message_bytes}.",
                may_have_run=False,
            )
        return data

    def notification(self, method: str, params: dict[str, Any] | None = None) -> Outgoing:
        return Outgoing(jsonrpc.notification(method, params), method)

    def cancellation(self, pending: Pending, reason: str) -> Outgoing:
        """`notifications/cancelled`: for every transport of the legacy era, and modern duplex ones."""
        return self.notification(methods.CANCELLED, {"requestId": pending.id, "reason": reason})

    def give_up(self, pending: Pending, *, late_answer: bool) -> None:
        """Stop waiting. `late_answer`: an answer may still come, and is then reported as late."""
        if late_answer:
            self._correlation.give_up(pending)
        else:
            self._correlation.drop(pending)

    def drain(self) -> list[Pending]:
        """All requests in flight, now none: the connection is over."""
        return self._correlation.drain()

    # -- in

    def receive(self, data: bytes, answering: Outgoing | None = None, status: int | None = None) -> list[Input]:
        """What one message (or batch) means. ProtocolError when it cannot be read.

        `status`: not 2xx; its error then belongs to `answering` whatever id the server wrote.
        """
        decoded = jsonrpc.decode(data, max_bytes=self._limits.message_bytes, max_depth=self._limits.depth)
        if len(decoded) == 1 and isinstance(decoded[0], Response):
            return self._answer(decoded[0], answering, status)
        inputs: list[Input] = []
        for message in decoded:
            if isinstance(message, Response):
                inputs += self._answer(message, answering, status)
            elif isinstance(message, Request):
                inputs += self._asked(message)
            elif isinstance(message, Notification):
                inputs += self._notified(message)
            else:
                inputs.append(events.ProtocolViolation(message.detail))
        return inputs

    def attribute(self, data: bytes) -> Pending | None:
        """The request that an unreadable message seems to answer, no longer in flight; None when unclear."""
        found = _ID_FIRST.match(data) or _ID_LAST.search(data[-256:])
        if found is None:
            return None
        text = found.group(1)
        return self._correlation.take(text[1:-1].decode("utf-8", "replace") if text[:1] == b'"' else int(text))

    def _answer(self, message: Response, answering: Outgoing | None, status: int | None) -> list[Input]:
        pending = self._correlation.take(message.id)
        if pending is None and status is not None and answering is not None:
            pending = self._correlation.take(answering.id)
        if pending is None:
            return [self._unasked(message)]
        if message.error is None:
            return [Answered(pending, message.result, None)]
        return [Answered(pending, None, self._rpc_error(message.error, status))]

    def _rpc_error(self, error: dict[str, Any], status: int | None) -> RpcError:
        certain = self.era is Era.MODERN and error["code"] in jsonrpc.REJECTED_UNSEEN
        return RpcError(
            error["code"], error["message"], error.get("data"), http_status=status, may_have_run=not certain
        )

    def _unasked(self, message: Response) -> events.Event:
        tombstone = self._correlation.take_tombstone(message.id)
        if tombstone is None or message.id is None:
            return events.ProtocolViolation(f"An answer to no open request arrived (id {str(message.id)[:40]}).")
        return events.LateAnswer(message.id, tombstone.method, message.result, message.error, tombstone.tag)

    def _asked(self, message: Request) -> list[Input]:
        if self.era is Era.MODERN:
            return [events.ProtocolViolation(f"A modern server sent the request {message.method[:80]}.")]
        if message.method == methods.PING:
            return [Outgoing(jsonrpc.result(message.id, {}))]
        refusal = Outgoing(jsonrpc.error(message.id, jsonrpc.METHOD_NOT_FOUND, "Method not found"))
        return [refusal, events.RequestRefused(message.method[:200], jsonrpc.METHOD_NOT_FOUND)]

    def _notified(self, message: Notification) -> list[Input]:
        params = message.params
        if message.method == methods.PROGRESS:
            return self._progressed(params)
        if message.method == methods.MESSAGE:
            logger = params.get("logger")
            level = str(params.get("level", "info"))[:32]
            return [events.LogMessage(level, logger if isinstance(logger, str) else None, params.get("data"))]
        if message.method in methods.LIST_CHANGED:
            return [events.ListChanged(methods.LIST_CHANGED[message.method])]
        if message.method == methods.RESOURCE_UPDATED:
            uri = params.get("uri")
            return [events.ResourceUpdated(uri)] if isinstance(uri, str) else []
        return [events.OtherNotification(message.method, params)]

    def _progressed(self, params: dict[str, Any]) -> list[Input]:
        progress, total, text = params.get("progress"), params.get("total"), params.get("message")
        if isinstance(progress, bool) or not isinstance(progress, (int, float)):
            return []
        pending = self._correlation.progressed(params.get("progressToken"), progress)
        if pending is None:
            return []
        return [
            events.Progress(
                pending.id,
                float(progress),
                float(total) if isinstance(total, (int, float)) and not isinstance(total, bool) else None,
                text if isinstance(text, str) else None,
                pending.tag,
            )
        ]

    def find(self, identity: RequestId) -> Pending | None:
        """The request in flight with this id."""
        return self._correlation.find(identity)

    def take(self, identity: RequestId | None) -> Pending | None:
        """The same, and no longer in flight: the owner ends it itself."""
        return self._correlation.take(identity)


def check_result(result: dict[str, Any], method: str, revision: Revision) -> None:
    """Refuse results that the revision does not allow here (2026-07-28: `resultType`)."""
    if revision.era is Era.LEGACY:
        return
    kind = result.get("resultType", "complete")
    if kind == "complete":
        return
    if kind == "input_required" and method in (methods.TOOLS_CALL, methods.PROMPTS_GET, methods.RESOURCES_READ):
        raise ProtocolError(Fault.INPUT_REQUIRED, "The server asks for input that this client did not offer to give.")
    raise ProtocolError(Fault.INVALID_RESULT, f"The result is of the unknown kind {str(kind)[:40]!r}.")
