"""Reading one entry: its members under any of their spellings, and what is said about them on the way."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servers.domain.importing.document import Input, Pairs
from servers.domain.importing.placeholders import Placeholder, replaced

_LONGEST_NAME = 60


@dataclass(frozen=True)
class Need:
    """A value that the file names and does not hold. Without a `required` one the entry cannot be registered."""

    key: str
    label: str
    place: str
    secret: bool = False
    default: str = ""
    required: bool = False


class Reading:
    """`take` and its kin give a member and remember that it was read; what is left over is told as not imported."""

    def __init__(self, raw: Mapping[str, Any], inputs: Mapping[str, Input], typed: Mapping[str, str]) -> None:
        self.problems: list[str] = [f"“{name}” stands twice in it. Remove one." for name in _doubles(raw)]
        self.notes: list[str] = []
        self.needs: dict[str, Need] = {}
        self.typed = typed
        self._raw, self._inputs = raw, inputs
        self._keys: dict[str, str] = {}
        self._left = dict.fromkeys(raw)
        for key in raw:
            if folded(key) in self._keys:
                self.problems.append(
                    f"“{short(self._keys[folded(key)])}” and “{short(key)}” mean the same. Remove one."
                )
            self._keys[folded(key)] = key

    def take(self, *names: str) -> Any:
        """The first of these members that is there and not null."""
        for name in names:
            key = self._keys.get(folded(name))
            if key is not None:
                self._left.pop(key, None)
                if self._raw[key] is not None:
                    return self._raw[key]
        return None

    def text(self, *names: str) -> str:
        return self._typed_as(str, "text", names) or ""

    def flag(self, *names: str) -> bool | None:
        return self._typed_as(bool, "true or false", names)

    def mapping(self, *names: str) -> Mapping[str, Any]:
        found = self._typed_as(dict, "an object", names) or {}
        return {key: value for key, value in found.items() if value is not None}

    def texts(self, *names: str) -> list[str]:
        found = self._typed_as(list, "a list", names) or []
        words = [as_text(item) for item in found]
        if any(word is None for word in words):
            self.problems.append(f"{names[0]} is not a list of texts.")
        return [word for word in words if word is not None]

    def _typed_as(self, kind: type, words: str, names: tuple[str, ...]) -> Any:
        found = self.take(*names)
        if found is not None and not isinstance(found, kind):
            self.problems.append(f"{names[0]} is not {words}.")
            return None
        return found

    # --- values that are needed ------------------------------------------------------------------------------------------
    def need(self, key: str, place: str, *, secret: bool = False, required: bool = False) -> Need:
        asked = self._inputs.get(key.removeprefix("input:"), Input()) if key.startswith("input:") else Input()
        before = self.needs.get(key)
        need = Need(
            key,
            asked.description or key.partition(":")[2] or key,
            place,
            secret or asked.secret or bool(before and before.secret),
            asked.default,
            required or bool(before and before.required),
        )
        self.needs[key] = need
        return need

    def plain(self, text: str, place: str) -> str:
        """Text in which no reference is resolved, such as a command: each placeholder needs its value."""

        def put(found: Placeholder) -> str | None:
            self.need(found.key, place, required=True)
            return self.typed.get(found.key)

        return replaced(text, put)

    def kept(self, text: str, place: str) -> str:
        """Text whose references a worker resolves; what means nothing there needs its value."""

        def put(found: Placeholder) -> str | None:
            if found.drops_default:
                self.notes.append(
                    f"The default of ${{{found.key}}} is left out: without that variable, connecting fails."
                )
            if found.reference:
                return found.reference
            self.need(found.key, place, required=True)
            return self.typed.get(found.key)

        return replaced(text, put)

    def leftovers(self) -> list[str]:
        return [short(key) for key in self._left]


def folded(name: str) -> str:
    """`serverUrl`, `server_url` and `server-url` are one name."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def as_text(value: Any) -> str | None:
    """A number or truth value, as a process would be given it; None for what is no text at all."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None


def short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"


def _doubles(value: Any) -> list[str]:
    """Of the object and all objects in it."""
    found, waiting = [], [value]
    while waiting:
        item = waiting.pop()
        found += [short(name) for name in item.doubles] if isinstance(item, Pairs) else []
        if isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    return found
