"""A posted form becomes a value again. The posted names say which controls were shown; the schema says what they mean."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from servers.json import text as json_text
from servers.json.text import Json, JsonProblem
from servers.numbers import whole_number
from servers.schemas.compile import MAX_DEPTH, MAX_NODES
from servers.schemas.kinds import (
    AnyJson,
    Array,
    Chips,
    Choice,
    Fixed,
    Number,
    Object,
    Switch,
    Text,
    Union,
    classify,
)
from servers.schemas.operations import Operation, parse_operation
from servers.schemas.pointer import PREFIX, NodePlace, name
from servers.schemas.resolve import Document
from servers.schemas.shapes import Schema, Unsupported
from servers.schemas.values import ABSENT, Branch, Draft, PendingKey, Unread, Unsendable, clean

Fields = Mapping[str, list[str]]
REQUIRED = "Required."
EMPTY_TEXT = "Required. To send an empty string, tick “send empty string”."


@dataclass(frozen=True)
class Parsed:
    """`value` is JSON to send, ABSENT while there are errors; `draft` is what to render again, errors or not. `missing`:
    the pointers of errors where nothing was entered."""

    value: Json
    errors: dict[str, list[str]] = field(default_factory=dict)
    op: Operation | None = None
    draft: Draft = ABSENT
    missing: frozenset[str] = frozenset()

    @property
    def ok(self) -> bool:
        return not self.errors and self.value is not ABSENT

    @property
    def unreadable(self) -> dict[str, list[str]]:
        """The errors of input that is not a value and cannot be shown as JSON."""
        return {pointer: lines for pointer, lines in self.errors.items() if pointer not in self.missing}


def parse_form(schema: Schema, data: Fields, *, prefix: str = PREFIX) -> Parsed:
    """`data` maps each field name to its values in order (`dict(request.POST.lists())`).

    `errors` maps JSON pointers to sentences about what cannot be read. The checker decides whether the value is valid.
    A structural edit is returned in `op`, unapplied: see operations.apply.
    """
    reader = _Reader(schema, data, prefix)
    draft = reader.read(schema, NodePlace())
    op = parse_operation(data.get("_op", []), lambda path: data.get(name(prefix, path, "pick"), [""])[-1])
    try:
        value = ABSENT if reader.errors else clean(draft)
    except Unsendable as exc:  # nothing unreadable may pass without an error beside it
        return Parsed(ABSENT, {"": [f"{exc}."]}, op, draft)
    return Parsed(value, reader.errors, op, draft, frozenset(reader.missing))


def parse_json(text: str) -> Parsed:
    """JSON mode: the whole value as text. An error is at the root and names line and column."""
    try:
        value = json_text.loads(text)
    except JsonProblem as problem:
        return Parsed(ABSENT, {"": [str(problem)]}, draft=Unread(text, raw=True))
    return Parsed(value, draft=value)


class _Reader:
    def __init__(self, schema: Schema, data: Fields, prefix: str) -> None:
        self._document = Document(schema)
        self._data = data
        self._prefix = prefix
        self._left = MAX_NODES * 2
        self._scripted = data.get(name(prefix, "", "live")) == ["1"]
        self.errors: dict[str, list[str]] = {}
        self.missing: set[str] = set()

    def read(self, schema: Schema, at: NodePlace) -> Draft:
        """The draft of one node that is sent."""
        raw = self._text(at, "json")
        if raw is not None:
            try:
                return json_text.loads(raw)
            except JsonProblem as problem:
                self._error(at, str(problem)) if raw.strip() else self._empty(at)
                return Unread(raw, raw=True)
        self._left -= 1
        if at.depth > MAX_DEPTH or self._left < 0:
            return self._missing(at)
        decisions = iter(self._text(at, "if") or "")
        try:
            flat = self._document.effective(schema, lambda condition: next(decisions, "0") == "1")
            kind = classify(self._document, flat)
        except Unsupported:
            return self._missing(at)
        match kind:
            case Union():
                return self._union(kind, at)
            case Array():
                return self._array(kind, at)
            case Object():
                return self._object(kind, at)
            case Text():
                return self._string(at)
            case Number():
                return self._number(kind, at)
            case Switch():
                return self._text(at) is not None
            case Fixed():
                return kind.value
            case Choice():
                return self._choice(kind, at)
            case Chips():
                shown_as_list = name(self._prefix, at.path, "len") in self._data
                return self._array(Array((), kind.items), at) if shown_as_list else self._chips(kind, at)
            case AnyJson():
                return self._missing(at)  # it is always shown as a JSON control, read above

    # --- what was posted ---

    def _text(self, at: NodePlace, part: str = "") -> str | None:
        values = self._data.get(name(self._prefix, at.path, part))
        return values[-1] if values else None

    def _count(self, at: NodePlace, part: str) -> int:
        return min(whole_number(self._text(at, part) or "") or 0, MAX_NODES)

    def _sent(self, at: NodePlace) -> bool:
        """The "send" box is ticked, or a container was shown, or, without scripts, something was typed beside an empty
        box."""
        if name(self._prefix, at.path, "on") in self._data:
            return True
        box = self._data.get(name(self._prefix, at.path, "send"), [])
        if "on" in box:
            return True
        return box == ["0"] and not self._scripted and self._typed(at)

    def _typed(self, at: NodePlace) -> bool:
        if any((self._text(at, part) or "").strip() for part in ("", "json")):
            return True
        branch = whole_number(self._text(at, "branch") or "")
        return branch is not None and self._typed(at.branch(branch))

    def _error(self, at: NodePlace, message: str) -> None:
        self.errors.setdefault(at.pointer, []).append(message)

    def _nothing(self, at: NodePlace, message: str) -> None:
        self._error(at, message)
        self.missing.add(at.pointer)

    def _empty(self, at: NodePlace) -> None:
        optional = name(self._prefix, at.path, "send") in self._data
        self._nothing(at, "Enter a value, or clear “send”." if optional else REQUIRED)

    def _missing(self, at: NodePlace) -> Draft:
        self._empty(at)
        return ABSENT

    # --- leaves ---

    def _string(self, at: NodePlace) -> Draft:
        text = (self._text(at) or "").replace("\r\n", "\n")
        decided = (
            name(self._prefix, at.path, "empty") in self._data or name(self._prefix, at.path, "send") in self._data
        )
        if text or decided:
            return text
        self._nothing(at, EMPTY_TEXT)
        return Unread("")

    def _number(self, kind: Number, at: NodePlace) -> Draft:
        text = self._text(at) or ""
        if not text.strip():
            self._empty(at)
            return Unread("")
        try:
            return json_text.number(text, integral=kind.integral)
        except ValueError as problem:
            self._error(at, str(problem))
            return Unread(text)

    def _choice(self, kind: Choice, at: NodePlace) -> Draft:
        index = _index(self._text(at) or "", len(kind.options))
        if index is None:
            if self._text(at):
                self._error(at, "This option is not available.")
            else:
                self._nothing(at, "Choose a value.")
            return Unread("")
        return kind.options[index].value

    def _chips(self, kind: Chips, at: NodePlace) -> Draft:
        posted = self._data.get(name(self._prefix, at.path), [])
        found = {_index(text, len(kind.choice.options)) for text in posted}
        if None in found:
            self._error(at, "This option is not available.")
        return [kind.choice.options[index].value for index in sorted(i for i in found if i is not None)]

    # --- containers ---

    def _union(self, kind: Union, at: NodePlace) -> Draft:
        shown, picked = self._text(at, "branch") or "0", self._text(at, "pick")
        index = _index(shown, len(kind.branches)) or 0
        if picked is not None and picked != shown:
            self._error(at, "Choose “Switch” to show the selected form.")
        return Branch(index, self.read(kind.branches[index], at.branch(index)))

    def _array(self, kind: Array, at: NodePlace) -> Draft:
        count = self._count(at, "len")
        return [self.read(kind.at(index), at.item(index)) for index in range(count)]

    def _object(self, kind: Object, at: NodePlace) -> Draft:
        draft: dict[Any, Draft] = {}
        for key, sub in kind.properties.items():
            place = at.property(key)
            if key in kind.required or self._sent(place):
                value = self.read(sub, place)
                if value is not ABSENT:
                    draft[key] = value
        for number in range(self._count(at, "rows")):
            named = at.row(number, "")
            text = self._text(named, "key") or ""
            blank = not text and name(self._prefix, named.path, "blank") not in self._data
            taken = text in kind.properties or text in draft
            value = self.read(kind.extra, at.row(number, text))
            if blank:
                self._error(at, "Enter a name for each added property, or remove it.")
            elif taken:
                self._error(at, f"The property “{text[:80]}” appears twice.")
            draft[PendingKey(number, text) if blank or taken else text] = value
        return draft


def _index(text: str, count: int) -> int | None:
    number = whole_number(text)
    return number if number is not None and number < count else None
