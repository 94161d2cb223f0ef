"""What a server offers, as last described, and the versions that were seen (see trimming)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from servers.definitions.listing import CheckedListing, Item, compatibility_of, digest_of, read_listing, rows_for
from servers.enums import DefinitionChange, DefinitionKind, IdentityKind
from servers.models import Definition, DefinitionVersion, Identity, Server
from servers.schemas.compatibility import Compatibility

__all__ = ["Counts", "body_of", "definitions", "digest_of", "kinds_known", "read_listing", "store", "store_listing"]
_CHANGEABLE = ["title", "description", "position", "body", "digest", "approved_digest", "changed_at", "removed_at"]


#: what agents call with arguments; a resource is only read
CALLABLE = (DefinitionKind.TOOL, DefinitionKind.PROMPT)


@dataclass(frozen=True)
class Counts:
    """`first`: nothing of this kind was known before. The names are those of the counted definitions."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    first: bool = field(default=False, compare=False)
    added_names: tuple[str, ...] = field(default=(), compare=False)
    changed_names: tuple[str, ...] = field(default=(), compare=False)
    removed_names: tuple[str, ...] = field(default=(), compare=False)
    breaking_names: tuple[str, ...] = field(default=(), compare=False)

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def definitions(server: Server, kind: DefinitionKind) -> QuerySet[Definition]:
    """What the server offers now to the identity `server` was read for, in the server's order."""
    return server.definitions.filter(kind=kind, removed_at=None, **server.identity_filter)


def body_of(definition: Definition) -> dict[str, Any]:
    """The server's own JSON. The top level is always an object; below it, a hostile server may send anything."""
    value = json.loads(definition.body)
    return value if isinstance(value, dict) else {}


def kinds_known(identity_id: int) -> set[DefinitionKind]:
    """The kinds of which anything is stored, removed or not."""
    kinds = Definition.objects.filter(identity_id=identity_id).order_by().values_list("kind", flat=True).distinct()
    return {DefinitionKind(kind) for kind in kinds}


def store_listing(
    server: Server,
    kind: DefinitionKind,
    items: Sequence[dict[str, Any]],
    now: datetime,
    identity: Identity | None = None,
) -> Counts:
    """Read and store in one step. Long lists should be read before the transaction that stores them. `identity` None:
    the shared one."""
    identity = identity or server.identities.get_or_create(kind=IdentityKind.SHARED)[0]
    return store(identity, read_listing(identity, kind, items), now)


def store(identity: Identity, listing: CheckedListing, now: datetime) -> Counts:
    """Make the rows match what the server just listed to `identity`, in one transaction; idempotent.

    A removed definition keeps its row and versions, so that its history continues when it is offered again.
    """
    with transaction.atomic():
        known = rows_for(identity, listing.kind, listing.items)
        first = not known and not identity.definitions.filter(kind=listing.kind).exists()
        news = _PendingChanges(now)
        for position, item in enumerate(listing.items.values()):
            row = known.get(item.key)
            if row is None:
                news.add(_new(identity, listing.kind, item, position, now))
            else:
                news.take(row, item, position, listing.checked.get(item.key))
        for row in known.values():
            if row.removed_at is None and row.key not in listing.items:
                news.drop(row)
        news.save()
    return news.counts(first=first)


def _new(identity: Identity, kind: DefinitionKind, item: Item, position: int, now: datetime) -> Definition:
    belongs = {"identity_id": identity.pk, "server_id": identity.server_id}
    row = Definition(**belongs, kind=kind, key=item.key, position=position, first_seen_at=now, changed_at=now)
    _describe(row, item)
    return row


def _describe(row: Definition, item: Item) -> None:
    row.title, row.description, row.body, row.digest = item.title, item.description, item.body, item.digest


class _PendingChanges:
    """The changes to write, collected row by row."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._added: list[Definition] = []
        self._changed: list[Definition] = []
        self._moved: list[Definition] = []
        self._gone: list[Definition] = []
        self._versions: list[DefinitionVersion] = []

    def add(self, row: Definition) -> None:
        self._added.append(row)
        self._keep(row, DefinitionChange.FIRST, [])

    def take(self, row: Definition, item: Item, position: int, checked: tuple[str, Compatibility] | None) -> None:
        same_place, row.position = row.position == position, position
        if row.digest == item.digest and row.removed_at is None:
            if not same_place:
                self._moved.append(row)
            return
        change, reasons, breaks = _change(row, item, checked)
        _note_approval(row, item.digest, breaks=breaks)
        _describe(row, item)
        row.changed_at, row.removed_at = self._now, None
        self._changed.append(row)
        self._keep(row, change, reasons)

    def drop(self, row: Definition) -> None:
        """The version of a removal has no body: nothing was described."""
        row.removed_at = self._now
        self._gone.append(row)
        self._keep(row, DefinitionChange.REMOVED, [], body="")

    def save(self) -> None:
        Definition.objects.bulk_create(self._added, batch_size=200)
        Definition.objects.bulk_update(self._changed, _CHANGEABLE, batch_size=100)
        Definition.objects.bulk_update(self._moved, ["position"], batch_size=200)
        Definition.objects.bulk_update(self._gone, ["removed_at"], batch_size=200)
        DefinitionVersion.objects.bulk_create(self._versions, batch_size=200)

    def counts(self, *, first: bool) -> Counts:
        breaking = (one.definition.key for one in self._versions if one.change == DefinitionChange.BREAKING)
        return Counts(
            len(self._added),
            len(self._changed),
            len(self._gone),
            first,
            tuple(row.key for row in self._added),
            tuple(row.key for row in self._changed),
            tuple(row.key for row in self._gone),
            tuple(breaking),
        )

    def _keep(self, row: Definition, change: DefinitionChange, reasons: list[str], body: str | None = None) -> None:
        kept = row.body if body is None else body
        fields = {"digest": row.digest, "body": kept, "seen_at": self._now, "change": change, "reasons": reasons}
        self._versions.append(DefinitionVersion(definition=row, **fields))


def _change(
    row: Definition, item: Item, checked: tuple[str, Compatibility] | None
) -> tuple[DefinitionChange, list[str], bool]:
    """How the new description differs from the one in the row, why, and whether it breaks."""
    if row.digest == item.digest:
        return DefinitionChange.RETURNED, [], False
    # Checked before the transaction; checked again when another version was stored meanwhile.
    found = checked[1] if checked is not None and checked[0] == row.digest else compatibility_of(row.body, item.body)
    breaks = found.change == "breaking"
    if row.removed_at is None:
        return DefinitionChange(found.change), found.reasons, breaks
    reason = "Only descriptions changed." if found.change == "words" else f"The change since then is {found.change}."
    return DefinitionChange.RETURNED, [reason, *found.reasons], breaks


def _note_approval(row: Definition, digest: str, *, breaks: bool) -> None:
    """Agents may not call what broke until a person has seen the difference. The version that they may call remains the
    one to compare with, even after several changes. If a server reverts its change, there is nothing to approve."""
    if row.approved_digest == digest:
        row.approved_digest = ""
    elif breaks and not row.approved_digest and row.kind in CALLABLE:
        row.approved_digest = row.digest
