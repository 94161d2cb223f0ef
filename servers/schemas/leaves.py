"""Controls for single values. A value that its control could not return unchanged is shown as JSON instead."""

import re
from collections.abc import Iterable
from datetime import date
from itertools import pairwise

from servers.json.text import dumps, number_text
from servers.schemas.kinds import (
    MAX_SUGGESTED_CHARS,
    MAX_SUGGESTIONS,
    Chips,
    Choice,
    Fixed,
    Number,
    has_many_options,
)
from servers.schemas.labels import INPUT_MODES, example, is_multiline, option_label, snippet, text_type
from servers.schemas.merge import Flat
from servers.schemas.nodes import (
    ChipsNode,
    ChoiceNode,
    FixedNode,
    JsonNode,
    Node,
    NumberNode,
    OptionItem,
    SwitchNode,
    TextNode,
)
from servers.schemas.pointer import NodePlace
from servers.schemas.shapes import Unsupported, text_of
from servers.schemas.values import ABSENT, FRESH, Branch, Draft, Unread, is_type, loose, same

_LONG_TEXT = 200
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_UNSAFE = re.compile("[\r\0\ud800-\udfff]")  # a browser would change or reject these in a control
UNSAFE_LINE = re.compile("[\n\r\0\ud800-\udfff]")


def json_node(flat: Flat, draft: Draft, at: NodePlace, required: bool, reason: str) -> Node:
    if isinstance(draft, Unread):
        text = draft.text
    else:
        new = draft is FRESH or (draft is ABSENT and required)
        value = flat.get("default", ABSENT) if new else loose(draft)
        text = "" if value is ABSENT else json_text(value)
    return JsonNode(
        text=text,
        reason=reason,
        rows=min(12, max(2, text.count("\n") + 1)),
        type_label="json",
        draft=draft,
        sent=required or draft is not ABSENT,
    )


def json_text(value: Draft) -> str:
    """The value as JSON that a text area returns unchanged."""
    text = dumps(value)
    return dumps(value, ascii_only=True) if _UNSAFE.search(text) else text


def text_node(flat: Flat, draft: Draft, at: NodePlace, required: bool) -> Node:
    text = draft.text if isinstance(draft, Unread) else "" if draft is ABSENT else draft
    if not isinstance(text, str):
        raise Unsupported("The value is not text.")
    if _UNSAFE.search(text):
        raise Unsupported("The text has characters that a text field would change.")
    many = has_many_options(flat)
    suggestions = _suggestions(item for item in flat.get("enum", ()) if isinstance(item, str)) if many else ()
    multiline = "\n" in text or (not suggestions and (len(text) > _LONG_TEXT or is_multiline(at.key, flat)))
    return TextNode(
        text=text,
        input_type="text" if multiline else _input_type(flat, text),
        multiline=multiline,
        rows=min(14, max(3, text.count("\n") + 2)),
        placeholder=example(flat),
        input_mode=INPUT_MODES.get(text_of(flat, "format", 30), ""),
        may_be_empty=required and draft == "",
        empty=required and draft == "",
        suggestions=suggestions,
        type_label="enum" if many else text_type(flat),
        draft=draft,
        sent=required or draft is not ABSENT,
    )


def _suggestions(values: Iterable[str]) -> tuple[str, ...]:
    """Empty if a field could not return them unchanged, or if the page would become too large."""
    found = tuple(values)
    too_large = len(found) > MAX_SUGGESTIONS or sum(map(len, found)) > MAX_SUGGESTED_CHARS
    return () if too_large or any(UNSAFE_LINE.search(value) for value in found) else found


def options_hint(node: Node, flat: Flat) -> str:
    """Why a value from a long list must be typed."""
    if not has_many_options(flat) or isinstance(node, JsonNode):
        return ""
    number = f"One of {len(flat['enum']):,} values"
    return (
        f"{number}: type a part of it to find it."
        if getattr(node, "suggestions", ())
        else f"{number}, too many to list here."
    )


def _input_type(flat: Flat, text: str) -> str:
    """A date field drops what it cannot show, so it is used for dates only; email and URL fields rewrite text."""
    kind = text_of(flat, "format", 30)
    if kind == "date" and (not text or _is_date(text)):
        return "date"
    return "password" if kind == "password" else "text"


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.match(text) and date.fromisoformat(text))
    except ValueError:
        return False


def number_node(kind: Number, flat: Flat, draft: Draft, at: NodePlace, required: bool) -> Node:
    label = "integer" if kind.integral else "number"
    if not isinstance(draft, Unread) and draft is not ABSENT and not is_type(draft, label):
        raise Unsupported("The value is not a whole number." if kind.integral else "The value is not a number.")
    text = draft.text if isinstance(draft, Unread) else "" if draft is ABSENT else number_text(draft)
    many = has_many_options(flat)
    return NumberNode(
        text=text,
        integral=kind.integral,
        suggestions=_suggestions(number_text(item) for item in flat["enum"] if is_type(item, label)) if many else (),
        type_label="enum" if many else label,
        draft=draft,
        sent=required or draft is not ABSENT,
    )


def switch_node(flat: Flat, draft: Draft, at: NodePlace, required: bool) -> Node:
    if draft is not ABSENT and not isinstance(draft, bool):
        raise Unsupported("The value is neither true nor false.")
    return SwitchNode(on=draft is True, type_label="boolean", draft=draft, sent=required or draft is not ABSENT)


def fixed_node(kind: Fixed, flat: Flat, draft: Draft, at: NodePlace, required: bool) -> Node:
    if draft is not ABSENT and not same(draft, kind.value):
        raise Unsupported(f"The value is not {snippet(kind.value, 60)}, the only one allowed.")
    return FixedNode(
        text=option_label(kind.value, None, mixed=True),
        type_label="null" if kind.value is None else "constant",
        draft=draft,
        sent=required or draft is not ABSENT,
    )


def choice_node(kind: Choice, draft: Draft, required: bool) -> Node:
    nothing = draft is ABSENT or isinstance(draft, Unread)
    chosen = None if nothing else kind.index(draft)
    if chosen is None and not nothing:
        raise Unsupported("The value is none of those allowed.")
    options = [OptionItem(str(i), option.label, i == chosen) for i, option in enumerate(kind.options)]
    return ChoiceNode(
        options=options, blank=chosen is None, type_label="enum", draft=draft, sent=required or draft is not ABSENT
    )


def as_chips(kind: Chips, draft: Draft) -> bool:
    """Whether chips reproduce the list exactly: known values, each once, in option order."""
    if draft is ABSENT:
        return True
    if not isinstance(draft, list):
        return True  # the caller falls back to a control that shows it unchanged
    if any(isinstance(item, Unread | Branch) or item in (ABSENT, FRESH) for item in draft):
        return False
    places = [kind.choice.index(item) for item in draft]
    known = [place for place in places if place is not None]
    return len(known) == len(places) and all(before < after for before, after in pairwise(known))


def chips_node(kind: Chips, draft: Draft, required: bool) -> Node:
    if draft is not ABSENT and not isinstance(draft, list):
        raise Unsupported("The value is not a list.")
    values = [] if draft is ABSENT else draft
    chosen = {kind.choice.index(item) for item in values}
    options = [OptionItem(str(i), option.label, i in chosen) for i, option in enumerate(kind.choice.options)]
    return ChipsNode(options=options, type_label="array of enum", draft=draft, sent=required or draft is not ABSENT)
