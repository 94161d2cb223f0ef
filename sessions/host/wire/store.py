"""Numbers and stores the recorded wire of many sessions in one transaction."""

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from django.db import transaction

from servers.sql import Insert
from sessions import hints
from sessions.connections.lifecycle import Lease
from sessions.host.wire import privacy
from sessions.host.wire.log import WireBatch, WireLog
from sessions.models import McpSession, WireMessage
from sessions.wire import retention

insert = Insert(WireMessage)
#: the log, a message's number and its position are the first four columns; a WireEntry gives the others
_entry_values = attrgetter(*insert.names[4:])


def append_all(batches: Sequence[tuple[WireLog, WireBatch]]) -> None:
    """Runs in the current transaction, for sessions that are still ours. Sets `newest` of each batch."""
    privacy.seal_bodies(entry for _, batch in batches for entry in batch.to_write)
    held = _held([log.lease for log, _ in batches])
    rows: list[list[Any]] = []
    grown: list[tuple[retention.LogKey, tuple[int, int], tuple[int, int]]] = []
    for log, batch in batches:
        if log.lease.session_id not in held or not batch.to_write:
            continue
        key = retention.LogKey(log.lease.server_id, log.lease.identity_id if log.lease.personal else None)
        before = log.newest or retention.newest(key)
        rows += _numbered(key, before, batch)
        grown.append((key, before, batch.newest or before))
        transaction.on_commit(
            partial(hints.wire_appended, log.lease.server_uid, batch.newest[0] if batch.newest else 0)
        )
    insert.many(rows)
    for key, before, now in grown:
        retention.trim(key, before, now)


def _held(leases: Sequence[Lease]) -> set[int]:
    """The ids of the sessions that these leases still own."""
    owned = {lease.session_id: (lease.worker_id, lease.epoch) for lease in leases}
    found = McpSession.objects.filter(pk__in=owned).values_list("pk", "owner_id", "epoch")
    return {pk for pk, owner, epoch in found if owned[pk] == (owner, epoch)}


def _numbered(key: "retention.LogKey", before: tuple[int, int], batch: WireBatch) -> list[list[Any]]:
    """The rows to insert, without those that an earlier attempt stored although it seemed to fail."""
    seq, position = before
    rows = []
    for entry in batch.to_write:
        if entry.seq is not None and entry.seq <= before[0]:
            continue
        seq, position = seq + 1, position + entry.stored_bytes
        entry.seq = seq
        rows.append(insert.values_of([*key, seq, position, *_entry_values(entry)]))
    batch.newest = seq, position
    return rows
