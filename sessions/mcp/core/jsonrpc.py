"""JSON-RPC 2.0 on bytes: decodes and checks hostile input, and encodes outgoing messages compactly.

Source: jsonrpc.org/specification; MCP 2025-03-26 *Batching* (accepted inbound, never sent).
"""

from dataclasses import dataclass
from typing import Any, Final

from . import json_text
from .errors import Fault, InvalidRequest, ProtocolError
from .json_text import invalid
from .limits import Limits
from .refusals import in_one_line, with_words

RequestId = int | str

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

#: A modern server sends these codes before it looks at the method: it certainly did not execute the request.
REJECTED_UNSEEN: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})

_ID_BITS: Final = 128
_ID_CHARACTERS: Final = 1024
#: members of an answer: an object that has neither these nor a method is not a message at all
_OF_ANSWERS: Final = frozenset({"id", "result", "error"})
_MENDED: Final = "A message contained an unpaired surrogate, which was read as U+FFFD."


@dataclass(frozen=True, slots=True)
class Request:
    id: RequestId
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: dict[str, Any]


@dataclass(slots=True)  # not frozen, for speed: each call creates one
class Response:
    """Exactly one of `result` and `error` is set. `id` is None if the server could not read the request's id."""

    id: RequestId | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None


Message = Request | Notification | Response


def is_id(value: Any) -> bool:
    """Strings and integers only, of bounded size because we send them back. In Python True and False are integers; in
    JSON-RPC they are not valid ids."""
    if type(value) is int:
        return value.bit_length() <= _ID_BITS
    return type(value) is str and len(value) <= _ID_CHARACTERS


def whole(value: Any) -> Any:
    """A number like 1.0 as an integer: servers whose numbers are all floats write our ids like that. Any other value
    unchanged."""
    return int(value) if type(value) is float and value.is_integer() else value


def classify(value: Any) -> Message:
    """A parsed value as a message; ProtocolError if it is not one. Unknown members are ignored."""
    if not isinstance(value, dict):
        raise invalid(f"{type(value).__name__} where an object is expected")
    if value.get("jsonrpc") != "2.0":
        raise invalid('no "jsonrpc":"2.0"')
    if "method" in value:
        return _call(value)
    if "result" in value or "error" in value:
        return _response(value)
    raise invalid("neither method nor result nor error")


def _call(value: dict[str, Any]) -> Request | Notification:
    method, params = value["method"], value.get("params")
    if params is None:
        params = {}
    if not isinstance(method, str) or not isinstance(params, dict):
        raise invalid("method is not a string or params is not an object")
    if "id" not in value:
        return Notification(method, params)
    if not is_id(value["id"]):
        raise invalid("the id of a request is neither a string nor an integer, or too long")
    return Request(value["id"], method, params)


def _response(value: dict[str, Any]) -> Response:
    identity = whole(value.get("id"))
    if identity is not None and not is_id(identity):
        raise invalid("the id of a response is neither a string nor an integer, or too long")
    error = value.get("error")
    if error is None:
        result = value.get("result")
        if not isinstance(result, dict):
            raise invalid("the result is not an object")
        return Response(identity, result, None)
    if "result" in value and value["result"] is not None:
        raise invalid("both result and error")
    if not isinstance(error, dict) or type(error.get("code")) is not int or not isinstance(error.get("message"), str):
        error = _odd_error(error)
    return Response(identity, None, error)


def _odd_error(error: Any) -> dict[str, Any]:
    """Accepts a code like -32000.0. Any other malformed error raises a ProtocolError that quotes the server."""
    code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, error)
    if isinstance(code, float) and code.is_integer() and isinstance(message, str):
        return {**error, "code": int(code)}
    said = [str(value).strip() for value in (code, message) if type(value) in (str, int, float)]
    problem = invalid("the error is not an object with code and message")
    problem.detail = with_words(problem.detail, in_one_line(": ".join(filter(None, said))))
    raise problem


def decode(data: bytes, limits: Limits) -> list[Message | ProtocolError]:
    """All messages of a server in `data`. A bad element of a batch becomes a ProtocolError in the list, and so does a
    bad single message that cannot be an answer; one that may be an answer is raised. If the text had to be repaired,
    a ProtocolError follows the messages."""
    value, mended = json_text.parse(data, limits)
    messages = _batch(value, limits) if isinstance(value, list) else [_single(value)]
    if mended:
        messages.append(ProtocolError(Fault.INVALID_MESSAGE, _MENDED))
    return messages


def _batch(elements: list[Any], limits: Limits) -> list[Message | ProtocolError]:
    if not elements:
        raise invalid("an empty batch")
    if len(elements) > limits.batch_messages:
        raise ProtocolError(Fault.VALUE_LIMIT, f"A batch contains more than {limits.batch_messages} messages.")
    return [_classified(element) for element in elements]


def _single(value: Any) -> Message | ProtocolError:
    message = _classified(value)
    if isinstance(message, ProtocolError) and _may_answer(value):
        raise message
    return message


def _may_answer(value: Any) -> bool:
    return isinstance(value, dict) and "method" not in value and not _OF_ANSWERS.isdisjoint(value)


def _classified(value: Any) -> Message | ProtocolError:
    try:
        return classify(value)
    except ProtocolError as exc:
        if isinstance(value, dict) and "method" in value and value.get("id", "") is None:
            # From a server that has one template for all messages: it means a notification.
            return _classified({name: member for name, member in value.items() if name != "id"})
        return exc


def encode(value: Any) -> bytes:
    """Compact UTF-8 without a raw newline. InvalidRequest for values that JSON cannot express."""
    return utf8(text_of(value))


def text_of(value: Any) -> str:
    """Like `encode`, but as text to embed in a larger text."""
    try:
        return json_text.encode(value)
    except (TypeError, ValueError) as exc:
        raise _unwritable(exc) from exc


def utf8(text: str) -> bytes:
    """JSON text as it is sent. InvalidRequest for half of a surrogate pair."""
    if not text.isascii():
        # Legal JSON, but peers that split on str.splitlines() would cut the message here.
        text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\u0085", "\\u0085")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise _unwritable(exc) from exc


def _unwritable(exc: Exception) -> InvalidRequest:
    return InvalidRequest(f"The request cannot be written as JSON: {exc}")


def request(identity: RequestId, method: str, params: dict[str, Any] | None, meta: str = "") -> bytes:
    """`meta`: the members of `params._meta` as JSON text. They are the same for each request of a modern session, as
    the envelope is for every request; to encode them each time would take as long as the rest."""
    text = "" if params is None else text_of(params)
    if meta:
        text = f'{text[:-1]},"_meta":{{{meta}}}}}' if params else f'{{"_meta":{{{meta}}}}}'
    if text:
        text = f',"params":{text}'
    number = identity if type(identity) is int else text_of(identity)
    return utf8(f'{{"jsonrpc":"2.0","id":{number},"method":{json_text.quoted(method)}{text}}}')


def notification(method: str, params: dict[str, Any] | None) -> bytes:
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        body["params"] = params
    return encode(body)


def result(identity: RequestId, value: dict[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "id": identity, "result": value})


def error(identity: RequestId | None, code: int, message: str) -> bytes:
    return encode({"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}})
