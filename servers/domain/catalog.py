"""What a server offers, as it described it last, and every version that was ever seen."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
import rfc8785
from django.db import transaction
from django.db.models import QuerySet

from servers.audit.canonical import clean, plain
from servers.enums import DefinitionKind
from servers.models import Definition, DefinitionVersion, Server

_KEYS = {
    DefinitionKind.TOOL: "name",
    DefinitionKind.PROMPT: "name",
    DefinitionKind.RESOURCE: "uri",
    DefinitionKind.RESOURCE_TEMPLATE: "uriTemplate",
}
_CHANGEABLE = ["title", "description", "position", "body", "digest", "changed_at", "removed_at"]


@dataclass(frozen=True)
class Counts:
    added: int = 0
    changed: int = 0
    removed: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def definitions(server: Server, kind: DefinitionKind) -> QuerySet[Definition]:
    """What the server offers now, in its own order."""
    return server.definitions.filter(kind=kind, removed_at=None)


def store_listing(server: Server, kind: DefinitionKind, items: Sequence[dict[str, Any]], now: datetime) -> Counts:
    """Make the rows what the server just listed. Items without a key, or with one that came before, are left out.

    A removed definition keeps its row and versions, so that its history is whole when it comes back.
    """
    listed = _by_key(kind, items)
    with transaction.atomic():
        known = {row.key: row for row in server.definitions.filter(kind=kind)}
        added = [_new(server, kind, key, item, position, now) for position, (key, item) in _missing(listed, known)]
        Definition.objects.bulk_create(added, batch_size=200)
        changed, moved = _compare(listed, known, now)
        gone = [row for row in known.values() if row.removed_at is None and row.key not in listed]
        for row in gone:
            row.removed_at = now
        Definition.objects.bulk_update([*changed, *moved, *gone], _CHANGEABLE, batch_size=100)
        versions = [
            DefinitionVersion(definition=row, digest=row.digest, body=row.body, seen_at=now)
            for row in [*added, *changed]
        ]
        DefinitionVersion.objects.bulk_create(versions, batch_size=200)
    return Counts(len(added), len(changed), len(gone))


def digest_of(item: Any) -> str:
    """SHA-256 of the canonical JSON; of sorted JSON where numbers leave what RFC 8785 can write."""
    try:
        data = rfc8785.dumps(item)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        data = orjson.dumps(plain(item), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(data).hexdigest()


def _by_key(kind: DefinitionKind, items: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    listed: dict[str, dict[str, Any]] = {}
    for item in items:
        key = item.get(_KEYS[kind])
        if isinstance(key, str) and key:
            listed.setdefault(clean(key), item)
    return listed


def _missing(
    listed: dict[str, dict[str, Any]], known: dict[str, Definition]
) -> list[tuple[int, tuple[str, dict[str, Any]]]]:
    return [(position, pair) for position, pair in enumerate(listed.items()) if pair[0] not in known]


def _new(
    server: Server, kind: DefinitionKind, key: str, item: dict[str, Any], position: int, now: datetime
) -> Definition:
    row = Definition(server=server, kind=kind, key=key, position=position, first_seen_at=now, changed_at=now)
    _describe(row, item)
    return row


def _describe(row: Definition, item: dict[str, Any]) -> None:
    annotations = item.get("annotations")
    hint = annotations.get("title") if isinstance(annotations, dict) else None
    row.title = _text(item.get("title")) or _text(hint)
    row.description = _text(item.get("description"))
    # ASCII escapes keep NUL and lone surrogates, which a text column cannot hold, as the server wrote them.
    row.body = _json(item)
    row.digest = digest_of(item)


def _compare(
    listed: dict[str, dict[str, Any]], known: dict[str, Definition], now: datetime
) -> tuple[list[Definition], list[Definition]]:
    """(described anew or back again, moved only)"""
    changed, moved = [], []
    for position, (key, item) in enumerate(listed.items()):
        row = known.get(key)
        if row is None:
            continue
        same_place, row.position = row.position == position, position
        if row.digest != digest_of(item) or row.removed_at is not None:
            _describe(row, item)
            row.changed_at, row.removed_at = now, None
            changed.append(row)
        elif not same_place:
            moved.append(row)
    return changed, moved


def _text(value: Any) -> str:
    return clean(value) if isinstance(value, str) else ""


def _json(item: dict[str, Any]) -> str:
    try:
        return orjson.dumps(item).decode()
    except TypeError:  # integers beyond 64 bits and lone surrogates
        return json.dumps(item)
