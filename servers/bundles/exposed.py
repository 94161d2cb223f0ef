"""The table of names: which tool or prompt of which server a name in a bundle means. Names are resolved through the
table, never by parsing them."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from servers.bundles import names
from servers.bundles.names import Target
from servers.enums import DefinitionKind
from servers.models import Bundle, BundleMember, Definition, ExposedName, Server

#: how long a name that is no longer offered stays reserved, and a deleted bundle can be restored
TOMBSTONE: Final = timedelta(days=90)
#: how long tools may be absent: a server that restarts without some of them soon has them again
ABSENT: Final = timedelta(days=1)
_TRIES: Final = 3
_BATCH: Final = 500


@dataclass(frozen=True)
class Renamed:
    """A former name, or one that looks like a name in use. `now`: the current name of its tool; empty if the bundle no
    longer has its server."""

    exposed: str
    now: str
    target: Target


def known(bundle_id: int, kind: DefinitionKind) -> dict[Target, str]:
    rows = ExposedName.objects.filter(bundle_id=bundle_id, kind=kind, retired_at=None)
    return {
        (str(uid), original): exposed
        for uid, original, exposed in rows.values_list("server_uid", "original", "exposed")
    }


def under_alias(bundle_id: int, kind: DefinitionKind, alias: str) -> dict[Target, str]:
    """Includes names of absent definitions, which come back with the alias."""
    rows = ExposedName.objects.filter(bundle_id=bundle_id, kind=kind, exposed__startswith=f"{alias}{names.SEPARATOR}")
    return {
        (str(uid), original): exposed
        for uid, original, exposed in rows.values_list("server_uid", "original", "exposed")
    }


def find(bundle_id: int, kind: DefinitionKind, exposed: str) -> Target | Renamed | None:
    if "\0" in exposed:
        return None
    row = ExposedName.objects.filter(bundle_id=bundle_id, kind=kind, skeleton=names.skeleton(exposed[:64])).first()
    if row is None or len(row.exposed) != len(exposed):
        return None
    if row.retired_at is None and row.exposed == exposed:
        return str(row.server_uid), row.original
    now = ExposedName.objects.filter(
        bundle_id=bundle_id, kind=kind, server_uid=row.server_uid, digest=row.digest, retired_at=None
    )
    return Renamed(exposed, now.values_list("exposed", flat=True).first() or "", (str(row.server_uid), row.original))


def assign(bundle_id: int, kind: DefinitionKind, wanted: Mapping[Target, str]) -> dict[Target, str]:
    """The names for `wanted` (targets with their server's alias); new ones are chosen in its order. Writes the new
    names, except for servers that were removed, or whose alias has changed since the caller read it."""
    for attempt in range(_TRIES):
        try:
            with transaction.atomic():
                return _assign(bundle_id, kind, wanted)
        except IntegrityError:  # another process assigned some of them at the same time
            if attempt == _TRIES - 1:
                raise
    return {}


def preview(bundle_id: int | None, kind: DefinitionKind, wanted: Mapping[Target, str]) -> dict[Target, str]:
    """The names that `assign` would give; with `bundle_id` None, in a new bundle. Writes nothing."""
    rows = [] if bundle_id is None else list(ExposedName.objects.filter(bundle_id=bundle_id, kind=kind))
    return _plan(rows, wanted)


def _plan(rows: Collection[ExposedName], wanted: Mapping[Target, str]) -> dict[Target, str]:
    taken = {row.skeleton: (str(row.server_uid), row.original) for row in rows}
    found = {(str(row.server_uid), row.original): row.exposed for row in rows if row.retired_at is None}
    for target, alias in wanted.items():
        if target not in found:
            found[target] = names.assigned(alias, target, taken)
            taken[names.skeleton(found[target])] = target
    return found


def _assign(bundle_id: int, kind: DefinitionKind, wanted: Mapping[Target, str]) -> dict[Target, str]:
    Bundle.objects.select_for_update(no_key=True).filter(pk=bundle_id).first()  # like changes of its members
    members = BundleMember.objects.filter(bundle_id=bundle_id, retired_at=None)
    aliases = {str(uid): alias for uid, alias in members.values_list("server__uid", "alias")}
    rows = list(ExposedName.objects.filter(bundle_id=bundle_id, kind=kind))
    planned = _plan(rows, wanted)
    current = {row.exposed for row in rows if row.retired_at is None}
    retired = {row.skeleton: row for row in rows if row.retired_at is not None}
    new = {
        target: name
        for target, name in planned.items()
        if name not in current and aliases.get(target[0]) == wanted[target]
    }
    again = [(row, name) for name in new.values() if (row := retired.get(names.skeleton(name))) is not None]
    for row, name in again:  # after a change between aliases that look alike, the spelling differs
        row.exposed, row.retired_at = name, None
    ExposedName.objects.bulk_update([row for row, _ in again], ["exposed", "retired_at"], batch_size=500)
    ExposedName.objects.bulk_create(
        [
            ExposedName(
                bundle_id=bundle_id,
                kind=kind,
                exposed=name,
                skeleton=names.skeleton(name),
                server_uid=UUID(target[0]),
                original=target[1],
                digest=hashlib.sha256(target[1].encode("utf-8", "surrogatepass")).hexdigest(),
            )
            for target, name in new.items()
            if names.skeleton(name) not in retired
        ],
        batch_size=500,
    )
    return planned


def retire(bundle: Bundle, server_uids: Collection[UUID]) -> None:
    """Retire the names of these servers' tools and prompts, which stay reserved for a while."""
    rows = ExposedName.objects.filter(bundle=bundle, server_uid__in=server_uids, retired_at=None)
    rows.update(retired_at=timezone.now())


def of_deleted_servers(bundle_id: int | None = None) -> QuerySet[ExposedName]:
    """Names whose server was deleted, along with its membership: in one bundle, or in all."""
    rows = ExposedName.objects.exclude(server_uid__in=Server.objects.values("uid"))
    return rows if bundle_id is None else rows.filter(bundle_id=bundle_id)


def remove_old() -> int:
    """Delete old tombstones, and bundles that were deleted long ago. Returns the number of rows deleted."""
    now = timezone.now()
    before = now - TOMBSTONE
    of_deleted_servers().filter(retired_at=None).update(retired_at=now)
    # Names of tools and prompts that their servers no longer have. One that comes back gets its name again.
    since = now - ABSENT
    offered = Definition.objects.filter(
        Q(removed_at=None) | Q(removed_at__gte=since),
        identity__server__uid=OuterRef("server_uid"),
        kind=OuterRef("kind"),
        key=OuterRef("original"),
    )
    absent = ExposedName.objects.filter(~Exists(offered), retired_at=None, created_at__lt=since)
    unoffered = list(absent.values_list("pk", flat=True))
    for start in range(0, len(unoffered), _BATCH):
        ExposedName.objects.filter(pk__in=unoffered[start : start + _BATCH]).update(retired_at=now)
    gone = Bundle.objects.filter(deleted_at__lt=before).delete()[0]
    gone += BundleMember.objects.filter(retired_at__lt=before).delete()[0]
    return gone + ExposedName.objects.filter(retired_at__lt=before).delete()[0]
