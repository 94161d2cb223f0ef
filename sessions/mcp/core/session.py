"""The protocol machine of one session: takes messages, returns inputs for the owner and messages to send.

It never waits and reads no clock. The owner (sessions/mcp/client/) passes whole messages to `receive()` and sends
every Outgoing that it returns. sessions/mcp/README.md shows who calls what and when.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from . import events, headers, input_requests, jsonrpc, methods, notifications
from .capabilities import META, Implementation, in_force, request_meta
from .correlation import Correlation, Pending
from .errors import Fault, McpError, ProtocolError, RpcError
from .jsonrpc import Notification, Request, RequestId, Response
from .limits import Limits
from .listening import Listens
from .refusals import without_words
from .state import State, Trigger, advance
from .versions import Era, Revision

_ID_FIRST: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,64}")(?:\.0+)?\s*[,}]'
)
_ID_LAST: Final = re.compile(
    rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,64}")(?:\.0+)?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z'
)
_STRING_ID: Final = "The server returned the id of our request as a string instead of a number."
_METHOD_FIRST: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"id"\s*:\s*(?:-?\d{1,18}(?:\.0+)?|"[^"\\]{1,64}"|null)\s*,\s*)?"method"\s*:'
)


@dataclass(slots=True, eq=False)
class Outgoing:
    """One message to send. `id` is set for requests only; `method` is empty for responses. `tag` is the caller's, as in
    Pending.

    `headers` mirror a modern request on HTTP. The transport sets `left` just before the first byte may leave. A request
    that is `answered` before that, because the session ended, must not leave any more.
    A transport with one reply stream per request reads `answered`, and sets `on_answered` to be notified when the
    answer arrives another way. `unreadable`: what else came in the reply and was no message; the transport names it if
    no answer comes. Before it repeats a request that was refused for lack of a token, a transport awaits
    `before_repeat`.
    """

    data: bytes
    method: str = ""
    id: RequestId | None = None
    headers: dict[str, str] = field(default_factory=dict)
    left: bool = False
    answered: bool = False
    unreadable: ProtocolError | None = None
    on_answered: Callable[[], None] | None = None
    tag: Any = None
    before_repeat: Callable[[str], Awaitable[None]] | None = None


@dataclass(slots=True, eq=False)
class Answered:
    """The answer to a request of ours: exactly one of `result` and `error` is set."""

    pending: Pending
    result: dict[str, Any] | None
    error: McpError | None


Input = Answered | Outgoing | input_requests.ServerRequest | input_requests.Withdrawn | events.Event


class Session:
    def __init__(self, info: Implementation, capabilities: Mapping[str, Any], limits: Limits) -> None:
        self._info = info
        self._capabilities = capabilities
        self._limits = limits
        self._correlation = Correlation(limits.pending_requests)
        #: modern: the members of `_meta` that every request carries, as JSON text
        self._meta = ""
        self.state = State.DISCONNECTED
        self.revision: Revision | None = None
        self.server_capabilities: dict[str, Any] = {}
        #: the part of our capabilities that the settled revision defines; empty before that
        self.declared: dict[str, Any] = {}
        #: modern: the lowest severity of log messages that requests ask for; None for no log messages
        self.log_level: str | None = None
        #: modern: the open listen requests
        self.listens = Listens()

    @property
    def era(self) -> Era:
        """Legacy until a revision is settled."""
        return self.revision.era if self.revision else Era.LEGACY

    @property
    def in_flight(self) -> int:
        return len(self._correlation)

    def move(self, trigger: Trigger, reason: str = "") -> list[events.Event]:
        """Change the state. Returns no event if the state stays the same."""
        old, self.state = self.state, advance(self.era, self.state, trigger)
        return [] if old is self.state else [events.StateChanged(old, self.state, reason)]

    def settle(self, revision: Revision | None) -> None:
        """Use this revision from now on; None clears the settled revision."""
        self.revision = revision
        self.declared = in_force(self._capabilities, revision) if revision else {}
        modern = revision is not None and revision.era is Era.MODERN
        meta = request_meta(revision.name, self._info, self.declared) if revision and modern else None
        self._meta = jsonrpc.text_of(meta)[1:-1] if meta else ""

    def declare(self, capabilities: Mapping[str, Any]) -> None:
        """Replace our capabilities. A modern server learns them with the next request, a legacy server never."""
        self._capabilities = capabilities
        if self.era is Era.MODERN:
            self.settle(self.revision)

    # -- out

    def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        tag: Any = None,
        wants_progress: bool = False,
        mirrored: tuple[headers.Mirrored, ...] | None = (),
        meta: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        log_level: str | None = None,
    ) -> tuple[Pending, Outgoing]:
        """Register a request and return its entry and its message. InvalidRequest, TooManyPending, ProtocolError.

        `mirrored`: the arguments that headers repeat; None: the transport has no headers. `meta`: the caller's own
        entries of `_meta` (trace context); ours take precedence. `capabilities` and `log_level`: for this modern request
        instead of the session's; of two levels the more verbose one counts."""
        pending = self._correlation.add(method, tag, wants_progress=wants_progress)
        try:
            head = self._meta_with(capabilities)
            level = _more_verbose(self.log_level, log_level)
            return pending, self._outgoing(pending, method, params, mirrored, meta, head, level)
        except BaseException:  # whatever the reason, no one will wait for it
            self._correlation.drop(pending)
            raise

    def _outgoing(
        self,
        pending: Pending,
        method: str,
        params: dict[str, Any] | None,
        mirrored: tuple[headers.Mirrored, ...] | None,
        own: Mapping[str, Any] | None,
        head: str,
        level: str | None,
    ) -> Outgoing:
        extra: dict[str, str] = {}
        if mirrored is not None and self._meta and self.revision:
            extra = headers.request_headers(method, params or {}, self.revision.name, mirrored)
        varies = own or level or pending.wants_progress
        data = jsonrpc.request(pending.id, method, params, self._meta_of(pending, own, head, level) if varies else head)
        return Outgoing(self._bounded(data), method, pending.id, extra, tag=pending.tag)

    def _meta_with(self, capabilities: Mapping[str, Any] | None) -> str:
        if capabilities is None or not self._meta or self.revision is None:
            return self._meta
        meta = request_meta(self.revision.name, self._info, in_force(capabilities, self.revision))
        return jsonrpc.text_of(meta)[1:-1]

    def _meta_of(self, pending: Pending, own: Mapping[str, Any] | None, head: str, level: str | None) -> str:
        """The members of this request's `_meta`, as JSON text. `head`: those that every request has."""
        varying = dict(own or {})
        if head and level and pending.method != methods.LISTEN:
            varying[META + "logLevel"] = level
        if pending.wants_progress:
            varying["progressToken"] = pending.id
        if not varying:
            return head
        members = jsonrpc.text_of(varying)[1:-1]
        return f"{members},{head}" if head else members

    def _bounded(self, data: bytes) -> bytes:
        if len(data) > self._limits.message_bytes:
            raise ProtocolError(
                Fault.MESSAGE_LIMIT,
                f"The request of {len(data)} bytes exceeds the limit of {self._limits.message_bytes} bytes.",
                may_have_run=False,
            )
        return data

    def notification(self, method: str, params: dict[str, Any] | None = None) -> Outgoing:
        return Outgoing(jsonrpc.notification(method, params), method)

    def reply(self, identity: RequestId, answer: dict[str, Any]) -> Outgoing:
        """Our answer to a request from the server. InvalidRequest or ProtocolError if it cannot be sent."""
        return Outgoing(self._bounded(jsonrpc.result(identity, answer)))

    def refuse(self, identity: RequestId, code: int, message: str) -> Outgoing:
        return Outgoing(jsonrpc.error(identity, code, message))

    def cancellation(self, pending: Pending, reason: str) -> Outgoing:
        """`notifications/cancelled`: for all transports of the legacy era, and for modern duplex ones."""
        return self.notification(methods.CANCELLED, {"requestId": pending.id, "reason": reason})

    def give_up(self, pending: Pending, *, late_answer: bool) -> None:
        """Stop waiting for an answer. `late_answer`: one may still arrive, and is then reported as late."""
        if late_answer:
            self._correlation.give_up(pending)
        else:
            self._correlation.drop(pending)

    def drain(self) -> list[Pending]:
        """Remove and return all requests in flight, because the connection has ended."""
        return self._correlation.drain()

    # -- in

    def receive(self, data: bytes, answering: Outgoing | None = None, status: int | None = None) -> list[Input]:
        """The inputs that one message (or batch) causes. ProtocolError if it may be an answer and cannot be read.

        `status`: an HTTP status other than 2xx. An answer with an unknown id then belongs to `answering`, and an error
        without an id always: the server could not read the request, and there is only this one.
        """
        decoded = self._decoded(data)
        if len(decoded) == 1 and isinstance(decoded[0], Response):
            return self._answer(decoded[0], answering, status)
        inputs: list[Input] = []
        for message in decoded:
            if isinstance(message, Response):
                inputs += self._answer(message, answering, status)
            elif isinstance(message, Request):
                inputs += self._asked(message, answering)
            elif isinstance(message, Notification):
                inputs += self._notified(message)
            else:
                inputs.append(events.ProtocolViolation(without_words(message.detail)))
                if answering is not None:
                    answering.unreadable = message
        return inputs

    def _decoded(self, data: bytes) -> list[jsonrpc.Message | ProtocolError]:
        try:
            return jsonrpc.decode(data, self._limits)
        except ProtocolError as exc:
            if _may_answer(data):
                raise
            return [exc]

    def attribute(self, data: bytes, *, unfinished: bool = False) -> Pending | None:
        """Remove and return the request that an unreadable message seems to answer; None if unclear. `unfinished`: `data` is
        only its beginning."""
        found = _ID_FIRST.match(data) if unfinished else _named(data)
        if found is None:
            return None
        text = found.group(1)
        quoted = text[:1] == b'"'
        identity = self._correlation.echoed(text[1:-1].decode("utf-8", "replace")) if quoted else int(text)
        return self._correlation.take(identity)

    def _answer(self, message: Response, answering: Outgoing | None, status: int | None) -> list[Input]:
        pending = self._correlation.take(message.id)
        if pending is None and (echoed := self._correlation.echoed(message.id)) is not None:
            message.id = echoed
            return [*self._answer(message, answering, status), events.ProtocolViolation(_STRING_ID)]
        unnamed = message.id is None and message.error is not None
        if pending is None and answering is not None and (status is not None or unnamed):
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
            return events.ProtocolViolation(f"A response to no open request arrived (id {str(message.id)[:40]}).")
        return events.LateAnswer(message.id, tombstone.method, message.result, message.error, tombstone.tag)

    def _asked(self, message: Request, answering: Outgoing | None) -> list[Input]:
        if self.era is Era.MODERN:
            return [events.ProtocolViolation(f"A modern server sent the request {message.method[:80]}.")]
        if message.method == methods.PING:
            return [Outgoing(jsonrpc.result(message.id, {}))]
        refusal = input_requests.refusal(message.method, message.params, self.declared)
        if refusal is not None:
            reply = self.refuse(message.id, refusal.code, refusal.message)
            return [reply, events.RequestRefused(message.method[:200], refusal.code)]
        params = input_requests.cleaned(message.method, message.params, self.declared)
        of = answering.id if answering is not None else None
        as_task = input_requests.wants_task(message.method, message.params, self.declared)
        return [
            input_requests.ServerRequest(
                message.id, message.method, params, input_requests.origin_of(params), of, as_task
            )
        ]

    def _notified(self, message: Notification) -> list[Input]:
        if message.method == methods.PROGRESS:
            return self._progressed(message.params)
        if message.method == methods.CANCELLED and self.era is Era.LEGACY:
            identity = message.params.get("requestId")
            if isinstance(identity, (int, str)) and jsonrpc.is_id(identity):
                return [input_requests.Withdrawn(identity)]
            return []
        if self.era is Era.LEGACY:
            return [*notifications.events_of(message)]
        if (ended := self._correlation.take(self.listens.ended_by(message))) is not None:
            return [Answered(ended, {}, None)]
        return [*self.listens.events_of(message)]

    def _progressed(self, params: dict[str, Any]) -> list[Input]:
        progress, text = _finite(params.get("progress")), params.get("message")
        if progress is None:
            return []
        pending = self._correlation.progressed(jsonrpc.whole(params.get("progressToken")), progress)
        if pending is None:
            return []
        message = text if isinstance(text, str) else None
        return [events.Progress(pending.id, progress, _finite(params.get("total")), message, pending.tag)]

    def find(self, identity: RequestId) -> Pending | None:
        """The request in flight with this id."""
        return self._correlation.find(identity)

    def every(self) -> list[Pending]:
        """All requests in flight."""
        return self._correlation.all()

    def keep_token(self, identity: RequestId, tag: Any) -> None:
        """Accept progress of a request after its answer, because it became a task."""
        self._correlation.keep_token(identity, tag)

    def drop_token(self, identity: RequestId) -> None:
        self._correlation.drop_token(identity)

    def take(self, identity: RequestId | None) -> Pending | None:
        """Remove and return the request in flight with this id: the owner ends it itself."""
        return self._correlation.take(identity)


def _may_answer(data: bytes) -> bool:
    """Whether an unreadable message may be an answer: it has the members of one, or names a request."""
    if _METHOD_FIRST.match(data) is not None:
        return False
    return b'"result"' in data or b'"error"' in data or _named(data) is not None


def _named(data: bytes) -> re.Match[bytes] | None:
    """The id that an unreadable message seems to have."""
    return _ID_FIRST.match(data) or _ID_LAST.search(data[-256:])


def _more_verbose(one: str | None, other: str | None) -> str | None:
    return min(filter(None, (one, other)), key=methods.LOG_LEVELS.index, default=None)


def _finite(value: Any) -> float | None:
    """None if the value is not a number, or is an integer too large for a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
