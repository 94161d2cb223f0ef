"""Reads JSON text from a hostile peer within limits. Size limits apply before parsing.

Source: RFC 8259. This module uses the standard library's parser because faster ones silently keep the last of two
equal keys and turn large integers into floats.
"""

import json
import json.encoder
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from .errors import Fault, ProtocolError
from .limits import Limits

_BOM: Final = b"\xef\xbb\xbf"
#: the escape of a surrogate, or an escaped backslash before "ud8": only these need the exact check
_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
#: one step over text without escapes: a whole string, or a character that introduces a value
_STRING_OR_VALUE: Final = re.compile(rb'"[^"]*"|[,{\[]')


_SPACE: Final = re.compile(r"\s*")
_COLON: Final = re.compile(r"\s*:\s*")
_COMMA: Final = re.compile(r"\s*,?\s*")
_PLAIN: Final = re.compile(r"[^,\]}\s]*")
_TO_STEP: Final = re.compile(r'[^"\[\]{}]*')
#: matches a limited number of escapes at a time
_IN_STRING: Final = re.compile(r'[^"\\]*(?:\\.[^"\\]*){0,4000}', re.DOTALL)


class _Duplicate(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Duplicate("an object names one key twice")
    return result


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if value - value != 0.0:
        raise ValueError("a number is too large")
    return value


_decoder: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)


def _decode(text: str) -> Any:
    # JSONDecoder.decode() runs two patterns to skip white space, which takes as long as parsing a short message.
    text = text.strip(" \t\r\n")
    value, end = _decoder.raw_decode(text)
    if end != len(text):
        raise ValueError(f"extra data after character {end}")
    return value


_encoder: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _pieces_of() -> Callable[[Any, int], Any] | None:
    """`JSONEncoder.encode` builds this C encoder for each value, which takes as long as encoding a short message. None
    if this Python has none."""
    make: Callable[..., Callable[[Any, int], Any]] | None = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return None
    # No record of the open containers: it would be shared by all threads. A circular value ends in a RecursionError.
    return make(None, _encoder.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)


_pieces: Final = _pieces_of() or (lambda value, _: (_encoder.encode(value),))
#: a string as JSON text
quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring


def encode(value: Any) -> str:
    """Compact JSON text. TypeError or ValueError for values that JSON cannot express."""
    try:
        return "".join(_pieces(value, 0))
    except RecursionError:
        raise ValueError("it is nested too deeply, or contains itself") from None


def parse(data: bytes, limits: Limits) -> tuple[Any, bool]:
    """The JSON value in `data`, and whether unpaired surrogates in it were replaced by U+FFFD.

    ProtocolError (message_limit, value_limit, depth_limit, invalid_message). One byte order mark is ignored.
    """
    if len(data) > limits.message_bytes:
        detail = f"A message of {len(data)} bytes exceeds the limit of {limits.message_bytes} bytes."
        raise ProtocolError(Fault.MESSAGE_LIMIT, detail)
    if len(data) > limits.message_values:
        check_values(data, limits.message_values)
    value = _value(data, limits.depth)
    # Counting brackets is far cheaper than walking the value, and almost every message has few.
    if data.count(b"{") + data.count(b"[") > limits.depth:
        check_depth(value, limits.depth)
    if b"\\u" in data and _SURROGATE_ESCAPE.search(data):
        return _without_surrogates(value)
    return value, False


def _value(data: bytes, max_depth: int) -> Any:
    try:
        return _decode(data.removeprefix(_BOM).decode("utf-8"))
    except RecursionError:
        raise _too_deep(max_depth) from None
    except UnicodeDecodeError as exc:
        raise invalid(f"not UTF-8 at byte {exc.start}") from exc
    except ValueError as exc:
        # Python's own message for such an integer is advice for programmers. A hook for integers would double the
        # parsing time.
        too_long = "set_int_max_str_digits" in str(exc)
        raise invalid("an integer has more digits than can be read" if too_long else str(exc)) from exc


def check_values(data: bytes, max_values: int) -> None:
    """ProtocolError (value_limit) if the text holds more values than allowed: eight bytes of text can cost two hundred
    bytes of memory."""
    if data.count(b",") + data.count(b"{") + data.count(b"[") <= max_values:
        return
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = max_values
    for match in _STRING_OR_VALUE.finditer(bare):
        if match.end() - match.start() == 1:
            left -= 1
            if left < 0:
                raise ProtocolError(Fault.VALUE_LIMIT, f"A message contains more than {max_values} values.")


def check_depth(value: Any, max_depth: int) -> None:
    """ProtocolError if arrays and objects nest deeper than `max_depth`."""
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


# --- our own JSON text: already parsed -------------------------------------------------------------------------------
def values_in(text: str) -> int:
    """The number of values. Too high if strings contain commas or brackets."""
    return text.count(",") + text.count("[") + text.count("{")


def without(text: str, name: str) -> tuple[str, str]:
    """The text of an object without this member, and the text of the member's value; "" if it has none. Works in
    short steps, because the JSON parser lets no other thread run until it has read everything."""
    before = at = _end(_SPACE, text, 1)
    while text[at] != "}":
        ends = _string_end(text, at)
        start = _end(_COLON, text, ends)
        end = _value_end(text, start)
        following = _end(_COMMA, text, end)
        if json.loads(text[at:ends]) == name:
            rest = text[:at] + text[following:] if text[following] != "}" else f"{text[:before]}}}"
            return rest, text[start:end]
        before, at = end, following
    return text, ""


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    return pattern.match(text, at).end()  # type: ignore[union-attr]  # JSON that was parsed before always matches


def _value_end(text: str, at: int) -> int:
    if text[at] not in '"[{':
        return _end(_PLAIN, text, at)
    depth = 0
    while True:
        at = _end(_TO_STEP, text, at)
        if text[at] == '"':
            at = _string_end(text, at)
        else:
            depth += 1 if text[at] in "[{" else -1
            at += 1
        if not depth:
            return at


def _string_end(text: str, at: int) -> int:
    """The end of the string whose first quotation mark is at `at`."""
    at += 1
    while text[at := _end(_IN_STRING, text, at)] != '"':
        pass
    return at + 1


def _without_surrogates(value: Any) -> tuple[Any, bool]:
    """Repair the value, so that one broken string does not cost a whole list. Fails only if two keys become equal."""
    text = encode(value)
    if not _SURROGATE.search(text):
        return value, False
    try:
        return _decode(_SURROGATE.sub("\ufffd", text)), True
    except ValueError as exc:
        raise invalid(str(exc)) from exc


def invalid(why: str) -> ProtocolError:
    return ProtocolError(Fault.INVALID_MESSAGE, f"The server sent a message that is not valid JSON-RPC: {why[:200]}.")


def _too_deep(max_depth: int) -> ProtocolError:
    return ProtocolError(Fault.DEPTH_LIMIT, f"A message is nested more than {max_depth} levels deep.")
