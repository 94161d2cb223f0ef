"""A part of a result as an argument of another tool: which parts there are, which fields accept it, and as what."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servers.json import text as json_text
from servers.json.text import MAX_DEPTH, depth
from servers.kit.json_tree import value_at
from servers.schemas.compile import compile_form
from servers.schemas.match import fits
from servers.schemas.nodes import Node, ObjectNode
from servers.schemas.pointer import segments, unescape
from servers.schemas.resolve import Document
from servers.schemas.shapes import Schema, Unsupported, types_of
from servers.schemas.values import is_type
from servers.secret import MASK
from sessions.calls.result_files import as_messages, items_of, text_of
from sessions.mcp.core.methods import PROMPTS_GET, RESOURCES_READ

STRUCTURED, MESSAGES = "structured", "messages"
PARTS = 100
#: as JSON text; what a form sends through the socket is limited to 1 MiB (servers.limits)
VALUE_CHARS = 400_000


@dataclass(frozen=True)
class Part:
    """`name`: STRUCTURED, MESSAGES, or the position of a content item; used in URLs."""

    name: str
    label: str


@dataclass(frozen=True)
class Field:
    """`pointer`: to the argument; empty for all arguments together. `path`: in the form (servers/schemas/pointer)."""

    pointer: str
    path: str
    label: str
    required: bool = False


class NoValue(Exception):
    """There is no value to pass on; the message says why."""


def parts_of(method: str, result: Mapping[str, Any]) -> list[Part]:
    found = [Part(STRUCTURED, "Structured result")] if "structuredContent" in result else []
    items = items_of(method, result)
    for position, item in enumerate(items):
        if (text := text_of(item)) is not None and len(found) < PARTS:
            found.append(Part(str(position), f"Text {position + 1}: {' '.join(text[:200].split())[:60]}"))
    if method in (PROMPTS_GET, RESOURCES_READ) and items:
        found.append(Part(MESSAGES, "All of it, as messages"))
    return found


def value_of(method: str, result: Mapping[str, Any], part: str, pointer: str | None) -> Any:
    """`pointer`: into the value, or into a text parsed as JSON; None for the text itself. Raises NoValue."""
    if part == STRUCTURED and "structuredContent" in result:
        value = result["structuredContent"]
    elif part == MESSAGES and method == PROMPTS_GET:
        value = result.get("messages")
    elif part == MESSAGES and method == RESOURCES_READ:
        value = as_messages(items_of(method, result))
    else:
        value = _text(method, result, part)
        if pointer is not None:
            value = _parsed(value)
    try:
        found = value_at(value, pointer or "")
    except LookupError:
        raise NoValue("The result has nothing there.") from None
    if _too_deep(found):
        raise NoValue(f"It is nested more than {MAX_DEPTH} levels deep, which is more than a form accepts.")
    size = len(json.dumps(found))
    if size > VALUE_CHARS:
        raise NoValue(f"It has {size:,} characters as JSON. A form accepts at most {VALUE_CHARS:,}.")
    return found


def _text(method: str, result: Mapping[str, Any], part: str) -> str:
    for position, item in enumerate(items_of(method, result)):
        if str(position) == part and (text := text_of(item)) is not None:
            return text
    raise NoValue("The result has no such text.")


def _parsed(text: str) -> Any:
    try:
        return json_text.exact(text)
    except json_text.JsonProblem as problem:
        raise NoValue(f"This text cannot be read as JSON. {problem}") from None


def fields_of(schema: Schema) -> list[Field]:
    """The fields that the empty form shows, except in lists and choices; last, all arguments at once."""
    return [*_fields(compile_form(schema), []), Field("", "", "All arguments, as JSON")]


def _fields(node: Node, around: list[str]) -> Iterator[Field]:
    for child in node.properties if isinstance(node, ObjectNode) else []:
        titles = [*around, child.title or child.key]
        words = f"{' › '.join(titles)} · {child.type_label}" if child.type_label else " › ".join(titles)
        yield Field(child.pointer, child.path, f"{words}, required" if child.required else words, child.required)
        yield from _fields(child, titles)


def suggested(schema: Schema, fields: list[Field], value: Any) -> str:
    """The pointer of the initially selected field: preferably one that accepts the value unchanged, and a required
    one."""
    document = Document(schema)

    def rank(field: Field) -> tuple[bool, bool]:
        return not fits(document, _schema_at(document, schema, field.pointer), value), not field.required

    return min(fields, key=rank).pointer


def arguments_with(schema: Schema, pointer: str, value: Any) -> Any:
    """The arguments in which the field has the value, in a form that the field accepts: unchanged, parsed, as JSON
    text, or as the only item of a list. If none of them fits, the value stays unchanged, and the form says so. Raises
    NoValue if the pointer goes deeper than a form can."""
    document = Document(schema)
    way = segments(pointer)
    if len(way) > MAX_DEPTH:
        raise NoValue(f"A form has no field that is more than {MAX_DEPTH} levels deep.")
    wanted = _schema_at(document, schema, pointer)
    chosen = next((one for one in _forms(value) if fits(document, wanted, one)), None)
    if chosen is None:
        try:
            types = types_of(document.flatten(wanted)[0])
        except Unsupported:
            types = []
        chosen = next((one for one in _forms(value) if any(is_type(one, name) for name in types)), value)
    for segment in reversed(way):
        chosen = {unescape(segment): chosen}
    if _too_deep(chosen):
        raise NoValue(
            f"The arguments would be nested more than {MAX_DEPTH} levels deep, which is more than a form accepts."
        )
    return chosen


def _forms(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, str):
        try:
            parsed = json_text.exact(value)
        except json_text.JsonProblem:
            pass
        else:
            if not _too_deep(parsed):
                yield parsed
    else:
        yield json.dumps(value, indent=2, ensure_ascii=False)
    yield [value]


def _too_deep(value: Any) -> bool:
    """Whether the value is too deep for a form: servers may nest their results as deep as they like."""
    return depth(value, MAX_DEPTH) > MAX_DEPTH


def _schema_at(document: Document, schema: Schema, pointer: str) -> Schema:
    """The schema of a field; True, which any value fits, if the field exists only under a condition of the schema."""
    try:
        for segment in segments(pointer):
            schema = document.flatten(schema)[0]["properties"][unescape(segment)]
    except (KeyError, TypeError, Unsupported):
        return True
    return schema


def masks_in(value: Any) -> int:
    if isinstance(value, str):
        return int(MASK in value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(masks_in(item) for item in inner)
