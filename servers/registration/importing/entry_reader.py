"""Reads one entry: its members in any of their spellings, and collects messages about them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError

from servers.registration.importing.example_values import ExampleValue, example_values, filled
from servers.registration.importing.inputs import Input
from servers.registration.importing.placeholders import Placeholder, in_one_spelling, parted
from servers.registration.importing.text import Pairs
from servers.validators import looks_secret, split_command_line

_LONGEST_NAME = 60


@dataclass(frozen=True)
class Need:
    """A value that the file refers to but does not contain. Without a `required` one, the entry cannot be registered.

    `printed`: what the file has in its place, such as `<host>`.
    """

    key: str
    label: str
    place: str
    secret: bool = False
    default: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()
    printed: str = ""


class EntryReader:
    """`take` and its variants return a member and mark it as read; the rest is reported as not imported."""

    def __init__(self, raw: Mapping[str, Any], inputs: Mapping[str, Input], typed: Mapping[str, str]) -> None:
        self.problems: list[str] = [f"“{name}” is defined twice. Remove one." for name in _doubles(raw)]
        self.notes: list[str] = []
        self.needs: dict[str, Need] = {}
        self.typed = typed
        self.is_own = isinstance(raw.get("mcpadmin"), dict)
        self._raw, self._inputs = raw, inputs
        self._keys: dict[str, str] = {}
        self._left = dict.fromkeys(raw)
        for key in raw:
            if folded(key) in self._keys:
                self.problems.append(
                    f"“{short(self._keys[folded(key)])}” and “{short(key)}” are the same setting. Remove one."
                )
            self._keys[folded(key)] = key

    def take(self, *names: str) -> Any:
        """The first of these members that is present and not null."""
        for name in names:
            key = self._keys.get(folded(name))
            if key is not None:
                self._left.pop(key, None)
                if self._raw[key] is not None:
                    return self._raw[key]
        return None

    def text(self, *names: str) -> str:
        return self._typed_as(str, "a string", names) or ""

    def flag(self, *names: str) -> bool | None:
        return self._typed_as(bool, "true or false", names)

    def mapping(self, *names: str) -> Mapping[str, Any]:
        """An object; or a list of pairs, as `{"name": …, "value": …}` or `NAME=value`."""
        found = self.take(*names)
        if isinstance(found, list) and found:
            pairs = [_pair(item) for item in found]
            if None not in pairs:
                return dict(pair for pair in pairs if pair is not None)
        if found is not None and not isinstance(found, dict) and found != []:
            self.problems.append(f"{names[0]} must be an object.")
        return {key: value for key, value in found.items() if value is not None} if isinstance(found, dict) else {}

    def texts(self, *names: str) -> list[str]:
        found = self.take(*names)
        if isinstance(found, str):
            return self._split(found, names[0])
        if found is not None and not isinstance(found, list):
            self.problems.append(f"{names[0]} must be a list.")
            return []
        words = [as_text(item) for item in found or []]
        if any(word is None for word in words):
            self.problems.append(f"{names[0]} must be a list of strings.")
        return [word for word in words if word is not None]

    def _split(self, text: str, name: str) -> list[str]:
        if not text.strip():
            return []
        try:
            first, rest = split_command_line(text)
        except ValidationError:
            self.problems.append(f"{name} has unmatched quotes.")
            return []
        return [first, *rest]

    def _typed_as(self, kind: type, words: str, names: tuple[str, ...]) -> Any:
        found = self.take(*names)
        if found is not None and not isinstance(found, kind):
            self.problems.append(f"{names[0]} must be {words}.")
            return None
        return found

    # --- values that are needed ------------------------------------------------------------------------------------------
    def need(
        self, key: str, place: str, *, secret: bool = False, required: bool = False, label: str = "", printed: str = ""
    ) -> Need:
        asked = self._inputs.get(key.removeprefix("input:"), Input()) if key.startswith("input:") else Input()
        before = self.needs.get(key)
        need = Need(
            key,
            asked.description or label or key.partition(":")[2] or key,
            place,
            secret or asked.secret or bool(before and before.secret),
            asked.default,
            required or bool(before and before.required),
            asked.choices,
            printed,
        )
        self.needs[key] = need
        return need

    def plain(self, text: str, place: str) -> str:
        """Fill in text in which no reference is resolved, such as a command: each placeholder needs its value."""
        return self.filled(text, place, keep=False, required=True)[0]

    def kept(self, text: str, place: str) -> str:
        """Fill in text whose references a worker resolves; placeholders that mean nothing to it need their values."""
        return self.filled(text, place, required=True)[0]

    def filled(
        self, text: str, place: str, *, keep: bool = True, required: bool = False, name: str = ""
    ) -> tuple[str, list[Need]]:
        """Return `text` with the typed values filled in, and what it needs. `name`: of a header or variable; its whole
        value is entered if it is only an example; `keep`: leave references to the worker."""
        needs: list[Need] = []
        secret = bool(name) and looks_secret(name)

        def of_placeholder(found: Placeholder, written: str) -> str:
            if self.is_own and not found.is_exported:
                return written
            if found.drops_default and keep:
                self.notes.append(
                    f"The default of ${{{found.key}}} is not supported: connecting fails unless the variable is set."
                )
            if found.reference and keep:
                return found.reference
            needs.append(self.need(found.key, place, secret=secret, required=required))
            return self.typed.get(found.key, written)

        def of_example(found: ExampleValue) -> str | None:
            alone = bool(name) and len(printed) == 1
            key = f"value:{name}" if alone else found.text if found.label else f"{place}: {found.text}"
            label = name if alone else found.label or f"{place[:1].upper()}{place[1:]}"
            is_secret = secret or looks_secret(found.text)
            needs.append(self.need(key, place, secret=is_secret, required=required, label=label, printed=found.text))
            return self.typed.get(key)

        pieces = parted(text if self.is_own else in_one_spelling(text))
        whole = len(pieces) == 1
        printed = [
            one for piece, mark in pieces if mark is None for one in self._printed(piece, secret and whole, place)
        ]
        out = ""
        for piece, mark in pieces:
            if mark is not None:
                out += of_placeholder(mark, piece)
            elif printed:
                out += filled(piece, of_example, secret=secret and whole, url=place == "URL")
            else:
                out += piece
        return out, needs

    def _printed(self, piece: str, secret: bool, place: str) -> list[ExampleValue]:
        """The example values in `piece`. None in an mcpadmin export: there, each value is literal."""
        return [] if self.is_own else example_values(piece, secret=secret, url=place == "URL")

    def leftovers(self) -> list[str]:
        return [short(key) for key in self._left]


def _pair(item: Any) -> tuple[str, Any] | None:
    if isinstance(item, str) and "=" in item:
        name, _, value = item.partition("=")
        return name.strip(), value
    if not isinstance(item, dict):
        return None
    named = next((item[key] for key in ("name", "key") if isinstance(item.get(key), str)), None)
    return None if named is None else (named, item.get("value", ""))


def folded(name: str) -> str:
    """`serverUrl`, `server_url` and `server-url` are the same name."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def as_text(value: Any) -> str | None:
    """A string, number or boolean as a process would receive it; None for anything else."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None


def short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"


def _doubles(value: Any) -> list[str]:
    """Duplicate names in the object and in all objects inside it."""
    found, waiting = [], [value]
    while waiting:
        item = waiting.pop()
        found += [short(name) for name in item.doubles] if isinstance(item, Pairs) else []
        if isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    return found
