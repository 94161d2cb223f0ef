"""Turns what crosses the wire of one connection into rows, with its secrets masked. Implements the recorder of
sessions.mcp.transports.recording.

Everything happens where the transport reports it, so a row never waits unmasked. What would not be kept is not prepared.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import orjson
from django.conf import settings

from servers.enums import Recording, RedactedPart
from servers.privacy.escapes import unescaped
from servers.privacy.redaction import Subject
from servers.secret import MASK, Secret
from servers.storable import storable
from sessions.calls.claims import PendingCall
from sessions.enums import WireDirection, WireKind
from sessions.host.answer_redaction import CUT_CHARS, Redactor, dumped
from sessions.host.wire import privacy
from sessions.host.wire.log import WireEntry, WireLog
from sessions.host.wire.masking import headers_text, masked_headers, masked_url
from sessions.mcp.core import json_text, methods
from sessions.mcp.core.errors import ProtocolError
from sessions.mcp.core.input_requests import related_task
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.session import Outgoing
from sessions.mcp.transports.recording import UNRECORDED_EXCHANGE, Exchange

METHOD_CHARS, ID_CHARS, TARGET_CHARS, FAULT_CHARS, DETAIL_CHARS = 200, 200, 2_000, 40, 2_000
#: requests of each side whose answers are expected
OPEN: Final = 1_024
#: bytes that one character of a secret may take: its UTF-8 bytes, or `\\u` and four digits twice
_ESCAPED: Final = 12


class _Open:
    """A request whose answer is expected."""

    __slots__ = ("asked", "call", "call_uid", "is_given_up", "method", "since", "target")

    def __init__(self, method: str, target: str, call_uid: UUID | None, call: PendingCall | None) -> None:
        self.method, self.target, self.call_uid, self.call = method, target, call_uid, call
        self.since = time.perf_counter()
        self.is_given_up = False
        self.asked: privacy.Asked | None = None


class WireRecorder:
    """One connection of a session. `level` may change while it is open. `redactor` knows the secrets of the session, also
    those that it learns later."""

    def __init__(self, log: WireLog, redactor: Redactor, level: str) -> None:
        self.level = level
        self._log, self._redactor = log, redactor
        self._hidden = Redactor()
        self._connection = time.time_ns() // 1_000
        self._transport, self._limits = "", Limits()
        self._exchanges = 0
        self._ours: dict[str, _Open] = {}
        self._theirs: dict[str, _Open] = {}
        #: the calls that the server runs as tasks, by task
        self._tasks: dict[str, _Open] = {}
        #: what the newest result of each call requested from a person
        self._asked: dict[UUID | None, dict[str, privacy.Asked]] = {}

    # --- transports.recording.Recorder ---------------------------------------------------------------------------
    def opened(self, kind: str, limits: Limits) -> None:
        self._transport, self._limits = kind, limits

    def hide(self, value: str) -> None:
        self._hidden.learn([Secret(value)])

    def exchange(self, verb: str, url: str, headers: Mapping[str, str], *, authorization: bool = False) -> Exchange:
        if self.level == Recording.OFF:
            return UNRECORDED_EXCHANGE
        self._exchanges += 1
        kind = WireKind.AUTHORIZATION if authorization else WireKind.EXCHANGE
        return _RecordedExchange(self, self._exchanges, kind, verb, url, headers)

    def sent(self, outgoing: Outgoing, exchange: Exchange | None = None) -> None:
        self._message(WireDirection.SENT, outgoing.data, _call_of(outgoing), exchange)

    def received(self, data: bytes, answering: Outgoing | None = None, exchange: Exchange | None = None) -> None:
        self._message(WireDirection.RECEIVED, data, _call_of(answering), exchange)

    # --- messages --------------------------------------------------------------------------------------------------
    def _message(
        self, direction: WireDirection, data: bytes, call: PendingCall | None, exchange: Exchange | None
    ) -> None:
        if self.level == Recording.OFF:
            return
        number = exchange.number if isinstance(exchange, _RecordedExchange) else None
        for value, text in self._messages(data):
            self._one(direction, value, text, call, number)

    def _messages(self, data: bytes) -> list[tuple[Any, bytes]]:
        """The messages in `data`, several of a batch (2025-03-26). The client applies its limits only later: what is over
        one of them is a single message that cannot be read."""
        try:
            value = _parsed(data, self._limits)
            if not isinstance(value, list) or not value:
                return [(value, data)]
            if len(value) <= self._limits.batch_messages:
                return [(item, dumped(item).encode()) for item in value]
        except (ProtocolError, ValueError):
            pass  # over the limit of values or of depth, or too deep to be written again
        return [(None, data)]

    def _one(
        self, direction: WireDirection, value: Any, data: bytes, call: PendingCall | None, exchange: int | None
    ) -> None:
        uid = call.uid if call is not None else None
        entry = WireEntry(direction, _kind(value), call_uid=uid, exchange=exchange, size=len(data))
        invalid = entry.kind == WireKind.INVALID
        subjects = self._subjects_in_flight(direction, call) if invalid else self._describe(entry, value, call)
        if not self._log.has_room():
            self._log.drop()
            return
        if self.level == Recording.FULL:
            try:
                if b'"requestState"' in data and not invalid:
                    data = _without_state(data)
                self._give_body(entry, data, subjects)
            except RecursionError:
                pass  # it nests too deeply to be searched for what must be masked: it is kept without its body
        self.add(entry)

    def _subjects_in_flight(self, direction: WireDirection, call: PendingCall | None) -> list[Subject | None]:
        """What a message that cannot be read may be about."""
        sent = direction == WireDirection.SENT
        part = RedactedPart.ARGUMENTS if sent else RedactedPart.RESULT
        if call is not None:
            return [self._subject(part, call.target, call)]
        open_ones = [self._subject(part, request.target, request.call) for request in self._ours.values()]
        return [*open_ones, self._subject(part, "", None)]

    def _describe(self, entry: WireEntry, value: dict[str, Any], call: PendingCall | None) -> Sequence[Subject | None]:
        """What both levels keep of a message; pairs it with its request. Returns what its contents are about."""
        subjects: list[Subject | None] = [None]
        sent = entry.direction == WireDirection.SENT
        identity = value.get("id")
        key = "" if identity is None else _text(identity)
        if entry.kind in (WireKind.REQUEST, WireKind.NOTIFICATION):
            entry.method = str(value["method"])
            params = value.get("params")
            params = params if isinstance(params, dict) else {}
            entry.target = _target(params)
            if (of_task := self._tasks.get(_task_of(params))) is not None:
                call = call or of_task.call
                entry.call_uid = of_task.call_uid
            entry.call_uid = entry.call_uid or self._about(entry, params)
            if (
                sent
                and entry.method == methods.CANCELLED
                and (given_up := self._ours.get(_text(params.get("requestId"))))
            ):
                given_up.is_given_up = True  # it may never be answered
            if entry.kind == WireKind.REQUEST:
                waiting = self._ours if sent else self._theirs
                waiting[key] = _Open(entry.method, entry.target, entry.call_uid, call)
                if sent:
                    subjects = self._of_request(entry, params, call)
                else:
                    waiting[key].asked = privacy.Asked.of(entry.method, params)
                if len(waiting) > OPEN:
                    del waiting[next(iter(waiting))]
        else:
            request = (self._theirs if sent else self._ours).pop(key, None)
            if request is not None:
                entry.method, entry.target = request.method, request.target
                entry.call_uid = request.call_uid or entry.call_uid
                entry.duration_ms = round((time.perf_counter() - request.since) * 1_000, 3)
                if request.asked is not None:
                    subjects = [request.asked.answer(self._log.lease.server_id, "result")]
                else:
                    # of a task the request names only the task
                    target = request.call.target if request.call is not None else request.target
                    subject = self._subject(RedactedPart.RESULT, target, request.call)
                    subjects = [subject]
                    if request.method == methods.TASKS_GET:  # 2026-07-28: with the result of the call in it
                        subjects.append(replace(subject, place=("result", "result")))
                    self._note_answer(value, request)
            entry.fault, words = _failure(entry.kind, value)
            entry.detail = words if self.level == Recording.FULL else ""  # it may repeat an argument
        entry.rpc_id = key
        self._mask(entry)
        return subjects

    def _of_request(self, entry: WireEntry, params: dict[str, Any], call: PendingCall | None) -> list[Subject | None]:
        subject = self._subject(RedactedPart.ARGUMENTS, entry.target, call)
        if entry.method == methods.COMPLETE:
            subject = replace(subject, place=("params",))
        answers = privacy.answers_in(params, self._asked.get(entry.call_uid, {}), self._log.lease.server_id)
        return [subject, *answers]

    def _subject(self, part: RedactedPart, target: str, call: PendingCall | None) -> Subject:
        return privacy.subject_of(part, self._log.lease.server_id, target, call)

    def _note_answer(self, value: dict[str, Any], request: _Open) -> None:
        """The answer to a call may name the task that its result comes from, and ask a person for something."""
        result = value.get("result")
        if asked := privacy.asked_in(result):
            self._asked.pop(request.call_uid, None)
            self._asked[request.call_uid] = asked
            if len(self._asked) > OPEN:
                del self._asked[next(iter(self._asked))]
        task = result.get("task", result) if isinstance(result, dict) and request.call_uid is not None else None
        if isinstance(task, dict) and isinstance(task.get("taskId"), str) and task["taskId"]:
            self._tasks[_task_of(task)] = request
            if len(self._tasks) > OPEN:
                del self._tasks[next(iter(self._tasks))]

    def _about(self, entry: WireEntry, params: dict[str, Any]) -> UUID | None:
        """The call that a message without an answer is about: the one it names, or the only one in flight."""
        named = params.get("progressToken") if entry.method == methods.PROGRESS else params.get("requestId")
        if named is not None:
            request = self._ours.get(_text(named))
            return request.call_uid if request is not None else None
        if entry.direction == WireDirection.RECEIVED and entry.kind == WireKind.REQUEST:
            waiting = (request for request in self._ours.values() if not request.is_given_up)
            calls = {request.call_uid for request in waiting if request.call_uid is not None}
            return calls.pop() if len(calls) == 1 else None
        return None

    def _mask(self, entry: WireEntry) -> None:
        masked = self._masker((entry.method, entry.rpc_id, entry.target, entry.detail))
        entry.method = storable(masked(entry.method), METHOD_CHARS)
        entry.rpc_id = storable(masked(entry.rpc_id), ID_CHARS)
        entry.target = storable(masked(entry.target), TARGET_CHARS)
        if entry.detail:
            entry.detail = storable(privacy.masked_words(masked(entry.detail)), DETAIL_CHARS)

    def _give_body(self, entry: WireEntry, data: bytes, subjects: Sequence[Subject | None]) -> None:
        most = settings.WIRE_BODY_KIB * 1024
        if len(data) <= most:
            text = self._masked_json(data.decode("utf-8", "replace"))
            entry.cut = len(text) > most
            privacy.give_body(entry, storable(text), subjects)
            entry.body = entry.body[:most]
        else:
            entry.cut = True
            privacy.give_body(entry, storable(self._masked_beginning(data, most)), subjects)
            entry.body = entry.body[: max(0, min(most, len(entry.body) - CUT_CHARS))]

    def _masked_json(self, text: str) -> str:
        """The text as it is, unless a secret is in it: then its value is written again without the secrets."""
        plain = unescaped(text)
        if not (self._redactor.occurs(plain) or self._hidden.occurs(plain)):
            return text
        try:
            return self._hidden.json_text(self._redactor.value(json.loads(text)))
        except (ValueError, RecursionError):
            return self.redacted(plain)

    def _masked_beginning(self, data: bytes, most: int) -> str:
        """The beginning of a message that is too large to keep. A secret that is cut off at the end cannot be
        recognised, so as much as the longest one may take is left out: here for our own secrets, later for detected
        ones."""
        longest = max(self._redactor.longest, self._hidden.longest)
        text = data[: most + _ESCAPED * (longest + CUT_CHARS)].decode("utf-8", "replace")
        masked = self.redacted(unescaped(text))
        return masked[: max(0, len(masked) - longest - _ESCAPED)] if longest else masked

    # --- messages and exchanges
    # ----------------------------------------------------------------------------------------
    def redacted(self, text: str, most: int | None = None) -> str:
        masked = self._hidden.text(self._redactor.text(text)) if text else ""
        return masked if most is None else storable(masked, most)

    def _masker(self, texts: Iterable[str]) -> Callable[[str], str]:
        """`redacted` for these texts. They are searched together, because mostly no secret is in any of them."""
        joined = "\n".join(texts)
        return self.redacted if self._redactor.occurs(joined) or self._hidden.occurs(joined) else _unchanged

    def add(self, entry: WireEntry) -> None:
        entry.connection, entry.transport = self._connection, self._transport
        self._log.add(entry)

    def head(self, headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        return masked_headers(headers, self._masker)

    def has_room(self) -> bool:
        """If not, counts one more dropped message."""
        if room := self._log.has_room():
            return room
        self._log.drop()
        return False


class _RecordedExchange:
    """One row when the head of the answer is there, or it failed. What follows changes that row while it waits to be
    written; later it is a row of its own, for streams only."""

    def __init__(
        self, recorder: WireRecorder, number: int, kind: WireKind, verb: str, url: str, headers: Mapping[str, str]
    ) -> None:
        self.number = number
        self._recorder, self._kind, self._verb, self._url = recorder, kind, verb, url
        self._headers = headers
        self._entry: WireEntry | None = None
        self._began, self._read = time.perf_counter(), 0
        self._is_stream = self._over = False

    def answered(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        received = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        media = next((value for name, value in received if name.lower() == "content-type"), "")
        self._is_stream = status == 101 or media.lower().startswith("text/event-stream")
        self._record(status, received)

    def failed(self, fault: str, detail: str) -> None:
        if self._over:
            return
        if self._entry is None:
            self._over = True
            self._record(None, (), fault, detail)
        else:
            self._end(fault, detail)

    def read(self, size: int) -> None:
        self._read += size

    def ended(self) -> None:
        if not self._over:
            self._end()

    def _record(
        self, status: int | None, received: Iterable[tuple[str, str]], fault: str = "", detail: str = ""
    ) -> None:
        recorder = self._recorder
        if not recorder.has_room():
            self._over = True
            return
        entry = self._entry = self._row(self._kind, fault, detail)
        entry.status = status
        entry.headers = storable(headers_text(recorder.head(self._headers.items()), recorder.head(received)), 64 * 1024)
        recorder.add(entry)
        self._headers = {}

    def _end(self, fault: str = "", detail: str = "") -> None:
        self._over = True
        entry, recorder = self._entry, self._recorder
        if entry is None:
            return
        if not entry.taken:
            entry.size = self._read
            entry.fault, entry.detail = fault[:FAULT_CHARS], recorder.redacted(detail, DETAIL_CHARS)
        elif (self._is_stream or fault) and recorder.has_room():
            recorder.add(self._row(WireKind.STREAM_END, fault, detail))

    def _row(self, kind: WireKind, fault: str, detail: str) -> WireEntry:
        recorder = self._recorder
        return WireEntry(
            WireDirection.RECEIVED if kind == WireKind.STREAM_END else WireDirection.SENT,
            kind,
            exchange=self.number,
            method=self._verb,
            target=storable(recorder.redacted(masked_url(self._url)), TARGET_CHARS),
            fault=fault[:FAULT_CHARS],
            detail=recorder.redacted(detail, DETAIL_CHARS),
            duration_ms=round((time.perf_counter() - self._began) * 1_000, 3),
            size=self._read,
        )


def _unchanged(text: str) -> str:
    return text


def _parsed(data: bytes, limits: Limits) -> Any:
    """None if it is not JSON; ProtocolError if it exceeds a limit."""
    if len(data) > limits.message_values:
        json_text.check_values(data, limits.message_values)
    value = _loaded(data)
    if data.count(b"{") + data.count(b"[") > limits.depth:
        json_text.check_depth(value, limits.depth)
    return value


def _loaded(data: bytes) -> Any:
    """None if it is not JSON. Other parsers accept some of what orjson rejects, such as lone surrogates."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _call_of(outgoing: Outgoing | None) -> PendingCall | None:
    return outgoing.tag if outgoing is not None and isinstance(outgoing.tag, PendingCall) else None


def _kind(value: Any) -> WireKind:
    if not isinstance(value, dict):
        return WireKind.INVALID
    if isinstance(value.get("method"), str):
        return WireKind.REQUEST if "id" in value else WireKind.NOTIFICATION
    if "error" in value:
        return WireKind.ERROR
    return WireKind.RESULT if "result" in value else WireKind.INVALID


def _task_of(params: dict[str, Any]) -> str:
    """The task that a message is about; empty if it names none."""
    named = params.get("taskId")
    return (named if isinstance(named, str) else related_task(params) or "")[:TARGET_CHARS]


def _without_state(data: bytes) -> bytes:
    """The server's `requestState` may contain personal data, and nobody needs to read it (2026-07-28, multi-round
    requests)."""
    value = json.loads(data)  # with integers of any size
    parts = {
        name: {**part, "requestState": MASK}
        for name in ("params", "result")
        if isinstance(part := value.get(name), dict) and isinstance(part.get("requestState"), str)
    }
    return dumped({**value, **parts}).encode() if parts else data


def _target(params: dict[str, Any]) -> str:
    """What the request is about: a tool, prompt, resource or task."""
    reference = params.get("ref")
    for source in (params, reference if isinstance(reference, dict) else {}):
        for name in ("name", "uri", "taskId"):
            if isinstance(source.get(name), str):
                return str(source[name])[: 4 * TARGET_CHARS]
    return ""


def _failure(kind: WireKind, value: dict[str, Any]) -> tuple[str, str]:
    if kind == WireKind.ERROR:
        error = value["error"]
        error = error if isinstance(error, dict) else {}
        words = error.get("message")
        words = str(words) if isinstance(words, (str, int, float)) else ""
        return _text(error.get("code"))[:FAULT_CHARS], words[: 4 * DETAIL_CHARS]
    result = value.get("result")
    return ("tool_error" if isinstance(result, dict) and result.get("isError") is True else ""), ""


def _text(identity: Any) -> str:
    if type(identity) is int:
        return str(identity)[:ID_CHARS]
    return json.dumps(identity)[:ID_CHARS] if isinstance(identity, (str, int, float)) else ""
