"""What a person may answer to a server's question. Checked here before it is stored, and again before it is sent.

Source: 2025-11-25 and 2026-07-28, *Client / Elicitation, Sampling*. Pure except for the schema checker: do not call in
an event loop.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from servers.json import text as json_text
from servers.schemas import checker, parse
from servers.schemas.pointer import join
from sessions.calls.arguments import SubmittedArguments
from sessions.enums import QuestionKind

Action = Literal["accept", "decline", "cancel"]
MODEL_CHARS: Final = 200
ANSWER_CHARS: Final = 1_000_000
_TOO_LONG: Final = f"The answer is longer than {ANSWER_CHARS:,} characters, which is a fixed limit."
_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
_TRUTH: Final = {"true": True, "false": False}


class Unfit(Exception):
    """The answer is not valid. `errors`: JSON pointer into the content -> sentences; "" is the whole content."""

    def __init__(self, message: str, errors: Mapping[str, list[str]] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.errors = dict(errors or {})


def requested_schema(params: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an elicitation's form: always an object, without additional properties.

    It uses the dialect in which `format` is an assertion, as the protocol means it. In later dialects it is only an
    annotation.
    """
    schema = params.get("requestedSchema")
    known = schema if isinstance(schema, dict) else {}
    return {**known, "$schema": _DIALECT, "type": "object", "additionalProperties": False}


def prefilled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The initial content of the form: the server's defaults, which are sent even if the person does not touch them."""
    return {name: field["default"] for name, field in _fields(schema).items() if "default" in field}


def read_answer(
    kind: str, params: Mapping[str, Any], action: Action, given: SubmittedArguments | None
) -> dict[str, Any] | None:
    """The answer to store; None if only the action is sent. Raises Unfit."""
    if action != "accept" or kind == QuestionKind.URL:
        return None
    given = given or SubmittedArguments(value={})
    if kind == QuestionKind.SAMPLING:
        return _sampled(params, given.value)
    return _content(requested_schema(params), given)


# --- a form ----------------------------------------------------------------------------------------------------------
def _content(schema: dict[str, Any], given: SubmittedArguments) -> dict[str, Any]:
    value = _coerced(schema, _value(schema, given))
    verdict = checker.check(schema, value)
    if verdict.state == "invalid":
        raise Unfit(_summary(verdict.errors), verdict.errors)
    if verdict.unable:
        words = f"The answer cannot be checked against the requested schema ({verdict.reason})."
        raise Unfit(f"{words} Decline or cancel instead.")
    return value


def _value(schema: dict[str, Any], given: SubmittedArguments) -> Any:
    if given.form is None and given.text is None:
        return given.value
    parsed = parse.parse_json(given.text or "") if given.form is None else parse.parse_form(schema, given.form)
    if parsed.op is not None:
        raise Unfit("Use the buttons of the form to add or remove fields.")
    if not parsed.ok:
        raise Unfit(_summary(parsed.errors), parsed.errors)
    return parsed.value


def _coerced(schema: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Values that the protocol allows: text, numbers, booleans, lists of text. Nulls are left out."""
    if not isinstance(value, Mapping):
        raise Unfit("The answer must be a JSON object.", {"": ["Enter a JSON object: { … }."]})
    fields = _fields(schema)
    given = {str(name): _typed(fields.get(name, {}), entry) for name, entry in value.items() if entry is not None}
    wrong = [name for name, entry in given.items() if not _flat(entry)]
    if wrong:
        words = "Only text, numbers, booleans and lists of text can be sent."
        raise Unfit("The answer contains values that cannot be sent.", {join([name]): [words] for name in wrong})
    return given


def _typed(field: Mapping[str, Any], entry: Any) -> Any:
    """Convert text from a plain form control, and 5.0 for an integer, to the field's type; leave other values
    unchanged."""
    read = _READERS.get(str(field.get("type")))
    return entry if read is None else read(entry)


def _integer(entry: Any) -> Any:
    number = _number(entry)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _number(entry: Any) -> Any:
    try:
        return json_text.number(entry, integral=False) if isinstance(entry, str) else entry
    except ValueError:
        return entry  # the checker reports what is wrong with it


def _boolean(entry: Any) -> Any:
    return _TRUTH.get(entry.strip().lower(), entry) if isinstance(entry, str) else entry


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {"integer": _integer, "number": _number, "boolean": _boolean}


def _flat(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(entry, str) for entry in value)
    return isinstance(value, str | int | float | bool)


def _fields(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    named = schema.get("properties")
    return {name: field for name, field in named.items() if isinstance(field, dict)} if isinstance(named, dict) else {}


def _summary(errors: Mapping[str, list[str]]) -> str:
    count = sum(len(messages) for messages in errors.values())
    return "1 invalid field." if count == 1 else f"{count} invalid fields."


# --- sampling --------------------------------------------------------------------------------------------------------
def _sampled(params: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """{role, content, model, stopReason}: what a model would have answered. `content`: one block or several."""
    given = value if isinstance(value, Mapping) else {}
    errors: dict[str, list[str]] = {}
    model = str(given.get("model") or "").strip()
    if not model or len(model) > MODEL_CHARS:
        errors["/model"] = [
            f"Enter the name of the person or model that answers, at most {MODEL_CHARS} characters (a fixed limit)."
        ]
    blocks, wrong = _blocks(given.get("content"), with_tools=bool(params.get("tools")))
    if wrong:
        errors["/content"] = [wrong]
    if errors:
        raise Unfit(_summary(errors), errors)
    answer = {"role": "assistant", "content": blocks[0] if len(blocks) == 1 else blocks, "model": model}
    reason = str(given.get("stopReason") or "").strip()
    return answer | {"stopReason": reason[:MODEL_CHARS]} if reason else answer


def _blocks(content: Any, *, with_tools: bool) -> tuple[list[dict[str, Any]], str]:
    """The blocks, and what is wrong with them. Several blocks, and tool uses, are allowed only if the server offered
    tools."""
    if isinstance(content, str):
        content = {"type": "text", "text": content}
    blocks = content if isinstance(content, list) else [content]
    if not blocks:
        return [], "Enter an answer."
    if len(blocks) > 1 and not with_tools:
        return [], "The request offers no tools, so the answer must be one block."
    for number, block in enumerate(blocks, start=1):
        if wrong := _wrong(block, with_tools=with_tools):
            return [], wrong if len(blocks) == 1 else f"Block {number}: {wrong}"
    return blocks, ""


def _wrong(block: Any, *, with_tools: bool) -> str:
    if not isinstance(block, dict):
        return "Enter text, or a content block: a JSON object with a type."
    kind = str(block.get("type"))
    check = _CHECKS.get(kind)
    if check is None:
        return f"The type must be {'text, image, audio or tool_use' if with_tools else 'text, image or audio'}."
    if kind == "tool_use" and not with_tools:
        return "The request offers no tools, so the answer must not use one."
    return check(block)


def _text(block: Mapping[str, Any]) -> str:
    text = block.get("text")
    if not isinstance(text, str) or not text.strip():
        return "Enter an answer."
    return _TOO_LONG if len(text) > ANSWER_CHARS else ""


def _media(block: Mapping[str, Any]) -> str:
    data, kind = block.get("data"), block.get("mimeType")
    if isinstance(data, str) and len(data) > ANSWER_CHARS:
        return _TOO_LONG
    if not isinstance(kind, str) or "/" not in kind or not isinstance(data, str) or not _base64(data):
        return "An image or audio block needs data (base64) and mimeType."
    return ""


def _base64(data: str) -> bool:
    try:
        return len(base64.b64decode(data, validate=True)) > 0
    except (binascii.Error, ValueError):
        return False


def _tool_use(block: Mapping[str, Any]) -> str:
    named = all(isinstance(block.get(name), str) and block[name] for name in ("id", "name"))
    return (
        ""
        if named and isinstance(block.get("input"), dict)
        else "A tool_use block needs id, name and input (an object)."
    )


_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "text": _text,
    "image": _media,
    "audio": _media,
    "tool_use": _tool_use,
}
