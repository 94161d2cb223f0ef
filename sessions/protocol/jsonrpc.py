"""JSON-RPC 2.0 on bytes: hostile input in, checked messages out; and the compact way back.

Source: jsonrpc.org/specification; MCP 2025-03-26 *Batching* (accepted inbound, never sent).
The standard library's parser is used because faster ones silently keep the last of two equal keys and turn
large integers into floats.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from .errors import Fault, InvalidRequest, ProtocolError

RequestId = int | str

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

#: Codes that a modern server answers before it looks at the method: the request was certainly not executed.
REJECTED_UNSEEN: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})


@dataclass(frozen=True, slots=True)
class Request:
    id: RequestId
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Response:
    """Exactly one of `result` and `error` is set. `id` is None when the server could not read ours."""

    id: RequestId | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None


Message = Request | Notification | Response


class _Duplicate(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Duplicate("an object names one key twice")
    return result


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_decode: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant).decode
_encode: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=True
).encode


def parse(data: bytes, *, max_bytes: int, max_depth: int) -> Any:
    """The JSON value in `data`, or ProtocolError (message_limit, depth_limit, invalid_message)."""
    if len(data) > max_bytes:
        raise ProtocolError(Fault.MESSAGE_LIMIT, f"A message of {len(data)} bytes is over the limit of {max_bytes}.")
    try:
        value = _decode(data.decode("utf-8"))
    except RecursionError:
        raise _too_deep(max_depth) from None
    except UnicodeDecodeError as exc:
        raise _invalid(f"not UTF-8 at byte {exc.start}") from exc
    except ValueError as exc:
        raise _invalid(str(exc)) from exc
    # Counting brackets is far cheaper than walking, and almost every message has few.
    if data.count(b"{") + data.count(b"[") > max_depth:
        check_depth(value, max_depth)
    if b"\\u" in data:
        _check_surrogates(value)
    return value


def check_depth(value: Any, max_depth: int) -> None:
    """ProtocolError when arrays and objects nest deeper than `max_depth`."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(max_depth):
        if not level:
            return
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
    if level:
        raise _too_deep(max_depth)


def _check_surrogates(value: Any) -> None:
    try:
        _encode(value).encode("utf-8")
    except UnicodeEncodeError as exc:
        raise _invalid("half of a surrogate pair in a string") from exc


def _invalid(why: str) -> ProtocolError:
    return ProtocolError(Fault.INVALID_MESSAGE, f"The server sent a message that is not valid JSON-RPC: {why[:200]}.")


def _too_deep(max_depth: int) -> ProtocolError:
    return ProtocolError(Fault.DEPTH_LIMIT, f"A message is nested deeper than {max_depth} levels.")


def is_id(value: Any) -> bool:
    """Strings and integers only; True and False are integers to Python but not to JSON-RPC."""
    return isinstance(value, (int, str)) and not isinstance(value, bool)


def classify(value: Any) -> Message:
    """One parsed object as a message; ProtocolError when it is none. Unknown members are ignored."""
    if not isinstance(value, dict):
        raise _invalid(f"{type(value).__name__} where an object is expected")
    if value.get("jsonrpc") != "2.0":
        raise _invalid('no "jsonrpc":"2.0"')
    if "method" in value:
        return _call(value)
    if "result" in value or "error" in value:
        return _response(value)
    raise _invalid("neither method nor result nor error")


def _call(value: dict[str, Any]) -> Request | Notification:
    method, params = value["method"], value.get("params")
    if params is None:
        params = {}
    if not isinstance(method, str) or not isinstance(params, dict):
        raise _invalid("method is no string or params no object")
    if "id" not in value:
        return Notification(method, params)
    if not is_id(value["id"]):
        raise _invalid("the id of a request is neither string nor integer")
    return Request(value["id"], method, params)


def _response(value: dict[str, Any]) -> Response:
    identity = value.get("id")
    if identity is not None and not is_id(identity):
        raise _invalid("the id of a response is neither string nor integer")
    error = value.get("error")
    if error is None:
        result = value.get("result")
        if not isinstance(result, dict):
            raise _invalid("the result is no object")
        return Response(identity, result, None)
    if "result" in value and value["result"] is not None:
        raise _invalid("both result and error")
    if not isinstance(error, dict) or type(error.get("code")) is not int or not isinstance(error.get("message"), str):
        raise _invalid("the error is no object with code and message")
    return Response(identity, None, error)


def decode(data: bytes, *, max_bytes: int, max_depth: int) -> list[Message | ProtocolError]:
    """All messages in `data`. The elements of a batch are judged one by one: a bad one is returned as the
    error it is. A bad single message raises."""
    value = parse(data, max_bytes=max_bytes, max_depth=max_depth)
    if not isinstance(value, list):
        return [classify(value)]
    if not value:
        raise _invalid("an empty batch")
    return [_classified(element) for element in value]


def _classified(element: Any) -> Message | ProtocolError:
    try:
        return classify(element)
    except ProtocolError as exc:
        return exc


def encode(value: Any) -> bytes:
    """Compact UTF-8 without a raw newline; InvalidRequest for what JSON cannot say."""
    try:
        text = _encode(value)
        if not text.isascii():
            # Legal JSON, but peers that split on str.splitlines() would cut the message here.
            text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\u0085", "\\u0085")
        return text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidRequest(f"The request cannot be written as JSON: {exc}") from exc


def request(identity: RequestId, method: str, params: dict[str, Any] | None) -> bytes:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": identity, "method": method}
    if params is not None:
        body["params"] = params
    return encode(body)


def notification(method: str, params: dict[str, Any] | None) -> bytes:
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        body["params"] = params
    return encode(body)


def result(identity: RequestId, value: dict[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "id": identity, "result": value})


def error(identity: RequestId, code: int, message: str) -> bytes:
    return encode({"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}})
