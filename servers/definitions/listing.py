"""A listing of a server before it is stored: the contents of each item, and how those already known have changed.

All of this takes time for a long list, so it is done outside the transaction that stores it.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import rfc8785

from servers.enums import DefinitionKind
from servers.json.canonical import plain
from servers.models import Definition, Identity
from servers.schemas.compatibility import LISTING_STEPS, TOO_LARGE, Compatibility, check_compatibility
from servers.schemas.schema_reading import Budget
from servers.storable import storable

CHECKED_CHARS = 512 * 1024
#: per query: an installation's SQLite may allow only 999 parameters
KEYS_TOGETHER = 900
_KEYS = {
    DefinitionKind.TOOL: "name",
    DefinitionKind.PROMPT: "name",
    DefinitionKind.RESOURCE: "uri",
    DefinitionKind.RESOURCE_TEMPLATE: "uriTemplate",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One definition, as stored in a row. `body` keeps NUL and lone surrogates as ASCII escapes."""

    key: str
    title: str
    description: str
    body: str
    digest: str


@dataclass(frozen=True)
class CheckedListing:
    """`checked`: key to (digest of the previous version, compatibility); `differs`: the rows do not match this yet."""

    kind: DefinitionKind
    items: dict[str, Item]
    checked: dict[str, tuple[str, Compatibility]] = field(default_factory=dict)
    differs: bool = True


def read_listing(identity: Identity, kind: DefinitionKind, items: Sequence[dict[str, Any]]) -> CheckedListing:
    """Items without a key, or with a key that occurred before, are left out."""
    found = _by_key(kind, items)
    rows = rows_for(identity, kind, found)
    budget = Budget(LISTING_STEPS)
    checked = {
        key: (rows[key].digest, compatibility_of(rows[key].body, item.body, budget))
        for key, item in found.items()
        if key in rows and rows[key].digest != item.digest
    }
    return CheckedListing(kind, found, checked, _differs(found, rows))


def rows_for(identity: Identity, kind: DefinitionKind, keys: Collection[str]) -> dict[str, Definition]:
    """The rows that are offered, and those of `keys` that were offered earlier. Not all rows: a server that always
    offers something new has many others."""
    rows = {row.key: row for row in identity.definitions.filter(kind=kind, removed_at=None)}
    unknown = [key for key in keys if key not in rows]
    for start in range(0, len(unknown), KEYS_TOGETHER):
        some = unknown[start : start + KEYS_TOGETHER]
        rows |= {row.key: row for row in identity.definitions.filter(kind=kind, key__in=some)}
    return rows


def compatibility_of(before: str, after: str, budget: Budget | None = None) -> Compatibility:
    """The compatibility of two bodies."""
    if max(len(before), len(after)) > CHECKED_CHARS:
        return Compatibility("breaking", [TOO_LARGE])
    return check_compatibility(json.loads(before), json.loads(after), budget)


def digest_of(item: Any) -> str:
    """SHA-256 of the canonical JSON, or of sorted JSON if it has numbers that RFC 8785 cannot write."""
    try:
        data = rfc8785.dumps(item)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        data = orjson.dumps(plain(item), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(data).hexdigest()


def _differs(found: dict[str, Item], rows: dict[str, Definition]) -> bool:
    offered = {key: row for key, row in rows.items() if row.removed_at is None}
    if found.keys() != offered.keys():
        return True
    return any(
        offered[key].digest != item.digest or offered[key].position != position
        for position, (key, item) in enumerate(found.items())
    )


def _by_key(kind: DefinitionKind, items: Sequence[dict[str, Any]]) -> dict[str, Item]:
    found: dict[str, Item] = {}
    for item in items:
        key = item.get(_KEYS[kind])
        if isinstance(key, str) and key and (key := storable(key)) not in found:
            found[key] = Item(
                key=key,
                title=title_of(kind, item),
                description=_text(item.get("description")),
                body=_json(item),
                digest=digest_of(item),
            )
    return found


def title_of(kind: DefinitionKind, item: dict[str, Any]) -> str:
    """The name for people. A resource is identified by its URI, so its name plays the part of a tool's title."""
    annotations = item.get("annotations")
    hint = annotations.get("title") if isinstance(annotations, dict) else None
    name = item.get("name") if _KEYS[kind] != "name" else None
    return _text(item.get("title")) or _text(hint) or _text(name)


def _text(value: Any) -> str:
    return storable(value) if isinstance(value, str) else ""


def _json(item: dict[str, Any]) -> str:
    try:
        return orjson.dumps(item).decode()
    except TypeError:  # integers beyond 64 bits and lone surrogates
        return json.dumps(item)
