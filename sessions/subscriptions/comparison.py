"""What changed from one version of a resource to another: contents side by side, each compared in a suitable way.

Pure: no model, no clock. Text is compared by lines, JSON by structure, binary by size and SHA-256.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from servers.kit.words import format_count
from sessions.differences.alignment import Budget, TooDifferent
from sessions.differences.structure import JsonDifference, TooDeep, compare_json
from sessions.differences.text import TextDifference, compare_texts

MOST_PARTS = 50
#: limit for one side of one content; above it, only size and digest are compared
MOST_CHARS = 2_000_000
#: compared as JSON up to this size of one side and this many values of all contents together; above it as text
JSON_CHARS = 1_000_000
JSON_VALUES = 200_000
_MIME_CHARS = 200


@dataclass(frozen=True)
class Facts:
    """What can be said about a content without showing it. `kind`: text or binary."""

    kind: str
    mime: str
    size: int
    sha256: str
    text: str = ""
    note: str = ""


@dataclass(frozen=True)
class ComparedContent:
    """One content of the resource. `how` picks the template's branch: same, text, json, facts, added or removed."""

    uri: str
    how: str
    old: Facts | None
    new: Facts | None
    text: TextDifference | None = None
    structure: JsonDifference | None = None
    note: str = ""
    others: JsonDifference | None = None
    """What changed besides the content and its type: its URI, `_meta`, annotations. None: nothing."""

    @property
    def mime_changed(self) -> bool:
        return self.old is not None and self.new is not None and self.old.mime != self.new.mime


@dataclass(frozen=True)
class VersionDifference:
    parts: tuple[ComparedContent, ...]
    hidden: int = 0
    """Contents beyond MOST_PARTS, which were not compared."""

    @property
    def same(self) -> bool:
        return not self.hidden and all(
            part.how == "same" and not part.mime_changed and part.others is None for part in self.parts
        )

    @property
    def summary(self) -> str:
        """One line: `2 lines added, 1 removed`."""
        return ", ".join(dict.fromkeys(words for part in self.parts if (words := _summary(part)))) or "No differences"


@dataclass(frozen=True)
class _Budgets:
    """Shared by all contents of one comparison."""

    steps: Budget
    values: Budget


def compare(old: Sequence[Any], new: Sequence[Any], *, others: bool = False) -> VersionDifference:
    """Both are the array `contents` of a resources/read result. They come from a server, so their shape is not
    trusted. `others`: also the fields of a content that are neither its text or data nor its type."""
    budgets = _Budgets(Budget(), Budget(JSON_VALUES))
    pairs = _paired(old, new)
    parts = []
    for uri, left, right in pairs[:MOST_PARTS]:
        part = _part(uri, left, right, budgets)
        parts.append(replace(part, others=_others(left, right, budgets)) if others else part)
    return VersionDifference(tuple(parts), max(0, len(pairs) - MOST_PARTS))


def facts_of(item: Any) -> Facts:
    if not isinstance(item, Mapping):
        return _text_facts(json.dumps(item, ensure_ascii=False), "")
    mime = str(item.get("mimeType") or "")[:_MIME_CHARS]
    if isinstance(item.get("text"), str):
        return _text_facts(item["text"], mime)
    if isinstance(item.get("blob"), str):
        return _binary_facts(item["blob"], mime)
    return _text_facts(json.dumps(dict(item), ensure_ascii=False), mime)


def _text_facts(text: str, mime: str) -> Facts:
    data = text.encode("utf-8", "surrogatepass")
    return Facts("text", mime, len(data), hashlib.sha256(data).hexdigest(), text)


def _binary_facts(blob: str, mime: str) -> Facts:
    raw = raw_bytes(blob)
    if raw is None:
        data = blob.encode("utf-8", "surrogatepass")
        note = "Invalid base64: size and digest are of the raw text."
        return Facts("binary", mime, len(data), hashlib.sha256(data).hexdigest(), note=note)
    return Facts("binary", mime, len(raw), hashlib.sha256(raw).hexdigest())


def raw_bytes(blob: str) -> bytes | None:
    try:
        return base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError):
        return None


# --- pairs -----------------------------------------------------------------------------------------------------------
def _paired(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[str, Any, Any]]:
    """Pairs contents by URI, repeated URIs by their order. If each side has only one content, the two are paired
    whatever their URIs."""
    if len(old) == len(new) == 1:
        return [(_uri(new[0]), old[0], new[0])]
    before, after = _by_key(old), _by_key(new)
    keys = [*after, *(key for key in before if key not in after)]
    return [(key[0], before.get(key), after.get(key)) for key in keys]


def _by_key(items: Sequence[Any]) -> dict[tuple[str, int], Any]:
    seen: dict[str, int] = {}
    found = {}
    for item in items:
        uri = _uri(item)
        seen[uri] = seen.get(uri, 0) + 1
        found[uri, seen[uri]] = item
    return found


def _uri(item: Any) -> str:
    return str(item.get("uri") or "") if isinstance(item, Mapping) else ""


def _others(old: Any, new: Any, budgets: _Budgets) -> JsonDifference | None:
    left, right = _rest(old), _rest(new)
    if left is None or right is None:
        return None
    try:
        found = compare_json(left, right, budgets.steps, budgets.values)
    except (RecursionError, TooDeep, TooDifferent):
        return None if left == right else JsonDifference((), hidden=True)
    return found if found.changes else None


def _rest(item: Any) -> dict[str, Any] | None:
    """None if the facts of a content describe the whole item."""
    if not isinstance(item, Mapping):
        return None
    shown = next((key for key in ("text", "blob") if isinstance(item.get(key), str)), "")
    return {name: item[name] for name in item if name not in (shown, "mimeType")} if shown else None


# --- one content -----------------------------------------------------------------------------------------------------
def _part(uri: str, old_item: Any, new_item: Any, budgets: _Budgets) -> ComparedContent:
    old = None if old_item is None else facts_of(old_item)
    new = None if new_item is None else facts_of(new_item)
    if old is None or new is None:
        return ComparedContent(uri, "added" if old is None else "removed", old, new)
    if old.kind == new.kind and old.sha256 == new.sha256:
        return ComparedContent(uri, "same", old, new)
    if old.kind != "text" or new.kind != "text":
        return ComparedContent(uri, "facts", old, new)
    if max(len(old.text), len(new.text)) > MOST_CHARS:
        return ComparedContent(uri, "facts", old, new, note="Too large to compare here. Download both versions.")
    return _of_texts(uri, old, new, budgets)


def _of_texts(uri: str, old: Facts, new: Facts, budgets: _Budgets) -> ComparedContent:
    structure = _structure(old.text, new.text, budgets)
    if structure is not None and structure.changes:
        return ComparedContent(uri, "json", old, new, structure=structure)
    equal = structure is not None and _equal(old.text, new.text)
    note = "The JSON values are equal; only order, spacing or notation differ." if equal else ""
    text = compare_texts(old.text, new.text, budgets.steps)
    if text is None:
        return ComparedContent(uri, "facts", old, new, note="Too many lines to compare here. Download both versions.")
    return ComparedContent(uri, "text", old, new, text=text, note=note)


def _structure(old: str, new: str, budgets: _Budgets) -> JsonDifference | None:
    """None unless both are objects or arrays of reasonable depth and difference, without repeated keys, of which a
    structure would show only the last; everything else is compared as text."""
    if max(len(old), len(new)) > JSON_CHARS:
        return None
    try:
        return compare_json(_loaded(old), _loaded(new), budgets.steps, budgets.values)
    except (ValueError, RecursionError, TooDeep, TooDifferent):
        return None


def _loaded(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        raise ValueError("neither an object nor an array")
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


def _equal(old: str, new: str) -> bool:
    """Exactly: two numbers may differ beyond what a float holds."""
    try:
        return bool(json.loads(old, parse_float=Decimal) == json.loads(new, parse_float=Decimal))
    except ArithmeticError:
        return False


def _summary(part: ComparedContent) -> str:
    if part.text is not None:
        return f"{format_count(part.text.added, 'line')} added, {part.text.removed:,} removed"
    if part.structure is not None:
        return _structure_summary(part.structure)
    words = {"facts": "Content replaced", "added": "Content item added", "removed": "Content item removed"}
    return words.get(part.how) or (
        "Type changed" if part.mime_changed else "Other fields changed" if part.others else ""
    )


def _structure_summary(found: JsonDifference) -> str:
    counts = [(found.changed, "changed"), (found.added, "added"), (found.removed, "removed")]
    words = ", ".join(f"{format_count(count, 'value')} {verb}" for count, verb in counts if count)
    return f"{words} and more" if found.hidden else words
