"""What every POST must satisfy before its era matters: media types, JSON, JSON-RPC.

Source: *Transports / Streamable HTTP / Sending messages* of 2025-03-26 to 2026-07-28.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..core import json_text, jsonrpc, methods, versions
from ..core.capabilities import META
from ..core.errors import Fault, ProtocolError
from ..core.jsonrpc import Message, RequestId
from ..core.limits import Limits
from ..core.versions import Era
from .refusals import Refusal, invalid_request

#: names are in lower case
Headers = Mapping[str, str]

VERSION: Final = "mcp-protocol-version"
SESSION: Final = "mcp-session-id"
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_ACCEPTED: Final = frozenset({JSON, EVENTS, "*/*", "application/*", "text/*"})
#: methods that exist only in the modern era: a request for one of these is modern, whatever else is missing
_MODERN_ONLY: Final = frozenset({methods.DISCOVER, methods.LISTEN})


@dataclass(frozen=True, slots=True)
class Posted:
    """`values`: the parsed messages, each still to be classified. `batch`: they came in an array."""

    values: tuple[Any, ...]
    batch: bool


def check_media_types(headers: Headers) -> None:
    """Clients should accept JSON and events; real ones send one of them, or */*."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise invalid_request("Content-Type must be application/json.", 415)
    accepted = {part.partition(";")[0].strip().lower() for part in headers.get("accept", "*/*").split(",")}
    if not accepted & _ACCEPTED:
        raise invalid_request("Accept must include application/json or text/event-stream.", 406)


def parse(body: bytes, limits: Limits) -> Posted:
    try:
        value, mended = json_text.parse(body, limits)
    except ProtocolError as problem:
        raise _unreadable(problem) from problem
    if mended:
        identity = id_of(value)
        if isinstance(identity, str) and "\ufffd" in identity:  # may contain the replacement: not the sender's id
            identity = None
        raise invalid_request("The message contains an unpaired surrogate.").of(identity)
    if isinstance(value, list):
        if not value:
            raise invalid_request("The batch is empty.")
        return Posted(tuple(value), batch=True)
    return Posted((value,), batch=False)


def _unreadable(problem: ProtocolError) -> Refusal:
    if problem.fault is Fault.INVALID_MESSAGE:
        return Refusal(400, jsonrpc.PARSE_ERROR, f"The body cannot be read as JSON: {_reason(problem)}")
    status = 413 if problem.fault is Fault.MESSAGE_LIMIT else 400
    return invalid_request(problem.detail, status)


def _reason(problem: ProtocolError) -> str:
    """The detail without its beginning, which mentions a server's message."""
    return problem.detail.partition(": ")[2]


def id_of(value: Any) -> RequestId | None:
    """The id of a message that may be invalid."""
    identity = value.get("id") if isinstance(value, dict) else None
    return identity if jsonrpc.is_id(identity) else None


def request_id(posted: Posted) -> RequestId | None:
    """The id of a single request. None for a batch, a notification or a response."""
    value = posted.values[0]
    return id_of(value) if not posted.batch and isinstance(value, dict) and "method" in value else None


def asks(posted: Posted) -> bool:
    """Whether any of the messages is a request, not a notification or response."""
    return any(isinstance(one, dict) and "method" in one and "id" in one for one in posted.values)


def message_of(value: Any) -> Message:
    try:
        return jsonrpc.classify(value)
    except ProtocolError as problem:
        words = f"This is not a JSON-RPC 2.0 message: {_reason(problem)}"
        raise invalid_request(words).of(id_of(value)) from problem


def era_of(posted: Posted, headers: Headers) -> Era:
    """Modern: the request's `_meta` names a version, or the header names a modern one."""
    if headers.get(VERSION) in versions.MODERN:
        return Era.MODERN
    value = posted.values[0] if not posted.batch else None
    if not isinstance(value, dict):
        return Era.LEGACY
    params = value.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    named = isinstance(meta, dict) and META + "protocolVersion" in meta
    method = value.get("method")
    return Era.MODERN if named or (isinstance(method, str) and method in _MODERN_ONLY) else Era.LEGACY


def progress_token(params: Mapping[str, Any]) -> RequestId | None:
    """The progress token: a string or an integer, including 0. Anything else counts as missing."""
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if jsonrpc.is_id(token) else None
