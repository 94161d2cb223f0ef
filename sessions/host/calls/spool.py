"""Results on this machine's disk while the database is unavailable.

The worker itself writes a result to the database as soon as it can. Its spool is read only if the worker died before
that. One file per worker, one JSON line per result, synced to disk before anything relies on it, at most LIMIT bytes.
"""

import asyncio
import json
import os
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog

from servers.audit import payload_privacy
from servers.audit.record import Actor, Event
from servers.crypto import SealError, open_bytes, seal_bytes
from servers.models import Payload
from sessions.calls import claims
from sessions.calls.claims import CallOutcome, PendingCall, Upstream
from sessions.connections.lifecycle import Lease
from sessions.enums import CallState
from sessions.host.calls import outcomes
from sessions.host.db import Database, DatabaseAway, RowsOrphaned, RowsRefused
from sessions.models import Worker

LIMIT = 64 * 1024 * 1024
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SpooledOutcome:
    """The outcome of a call as it was spooled."""

    call: PendingCall
    lease: Lease
    outcome: CallOutcome

    # A file may be read by a worker of the previous version: it knows call and lease as "order" and "hold", and refuses
    # unknown fields, so newer fields are kept separate.
    def line(self) -> bytes:
        # The state that a server wants back in a round is not written: its agent starts over.
        bare = replace(self.call, arguments="", definition="", agent=None)
        call = {**vars(bare), "actor": dict(vars(self.call.actor))}
        outcome = dict(vars(self.outcome))
        del call["agent"], outcome["required"]
        later = {name: call.pop(name) for name in ("argument_bytes", "sent_at", "redacted_id")}
        later |= {"way": call["actor"].pop("way"), "upstream": vars(outcome.pop("upstream"))}
        later |= {"redacted": outcome.pop("redacted")}
        parts = {"order": call, "hold": vars(self.lease), "later": later}
        if self.outcome.result is not None and payload_privacy.latest().seal:
            sealed, key_id = seal_bytes(self.outcome.result.encode("utf-8", "surrogatepass"), **_place(self.call.uid))
            outcome["result"] = None
            parts["sealed"] = {"result": b64encode(sealed).decode(), "key_id": key_id}
        return json.dumps(parts | {"outcome": outcome}, default=str).encode() + b"\n"

    @classmethod
    def of(cls, line: bytes) -> "SpooledOutcome":
        """Raises ValueError, KeyError or TypeError for a line that is truncated or not ours, SealError without its key."""
        read: dict[str, Any] = json.loads(line)
        call, lease, outcome = read["order"], read["hold"], read["outcome"]
        later = read.get("later") or {"way": "", "argument_bytes": 0, "sent_at": None, "upstream": {}}
        call |= {"uid": UUID(call["uid"]), "actor": Actor(**call["actor"], way=later["way"])}
        sent_at = later["sent_at"] and datetime.fromisoformat(later["sent_at"])
        call |= {"argument_bytes": later["argument_bytes"], "sent_at": sent_at}
        outcome |= {"state": CallState(outcome["state"]), "upstream": Upstream(**later["upstream"])}
        lease |= {name: UUID(lease[name]) for name in ("session_uid", "server_uid", "worker_uid")}
        call |= {"redacted_id": later.get("redacted_id")}
        outcome |= {"redacted": later.get("redacted", 0)}
        if (sealed := read.get("sealed")) is not None:
            data = open_bytes(b64decode(sealed["result"]), key_id=sealed["key_id"], **_place(call["uid"]))
            outcome |= {"result": data.decode("utf-8", "surrogatepass")}
        return cls(PendingCall(**call), Lease(**lease), CallOutcome(**outcome))


def _place(call: UUID) -> dict[str, Any]:
    """What a sealed result is bound to."""
    return {"table": "spool", "uid": call, "field": "result"}


class Spool:
    def __init__(self, directory: Path, worker_uid: UUID) -> None:
        self._path = directory / f"{worker_uid}.jsonl"
        self._waiting: set[UUID] = set()
        self._order = asyncio.Lock()

    async def keep(self, kept: SpooledOutcome) -> None:
        """Spool a result whose first write to the database failed. A spool that cannot be written or encrypted must not
        prevent the next attempt."""
        self._waiting.add(kept.call.uid)
        async with self._order:
            try:
                await asyncio.to_thread(_append, self._path, kept)
            except (OSError, SealError) as problem:
                log.warning("host.spool_not_written", call=str(kept.call.uid), problem=str(problem)[:200])

    async def done(self, uid: UUID) -> None:
        """The database has the result. The file is removed with the last waiting result."""
        if uid in self._waiting:
            self._waiting.discard(uid)
            if not self._waiting:
                async with self._order:
                    await asyncio.to_thread(self._path.unlink, missing_ok=True)


def _append(path: Path, kept: SpooledOutcome) -> None:
    line = kept.line()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size + len(line) > LIMIT:
            raise OSError(f"the spool holds {LIMIT} bytes already")
        try:
            _write_whole(descriptor, line)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)  # a partial line would be read as the beginning of the next one
            raise
    finally:
        os.close(descriptor)


def _write_whole(descriptor: int, data: bytes) -> None:
    """Write everything: a disk that is nearly full accepts only a part at a time."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


# --- what a dead worker left ------------------------------------------------------------------------------------------
def left_behind(directory: Path, me: UUID, dead: set[UUID]) -> list[Path]:
    """Spools of workers that are in `dead`, or that no longer have a row. Call in a reader thread."""
    found = {path: uid for path in directory.glob("*.jsonl") if (uid := _uid(path)) not in (None, me)}
    living = set(Worker.objects.filter(uid__in=[uid for uid in found.values() if uid]).values_list("uid", flat=True))
    return [path for path, uid in found.items() if uid in dead or uid not in living]


def _uid(path: Path) -> UUID | None:
    try:
        return UUID(path.stem)
    except ValueError:
        return None


async def merge(db: Database, paths: list[Path]) -> None:
    """Write the outcomes of the calls. If a call already has a final state, the result is kept as a late one. Lines
    that the key ring cannot open stay until it has that key again."""
    for path in paths:
        try:
            ends, closed = await asyncio.to_thread(_read, path)
            for kept in ends:
                await _merge_one(db, kept)
            if closed and ends:
                await asyncio.to_thread(_replace, path, b"".join(closed))
            elif not closed:
                await asyncio.to_thread(path.unlink, missing_ok=True)
        except (OSError, DatabaseAway) as problem:
            log.warning("host.spool_not_merged", spool=path.name, problem=str(problem)[:200])
        else:
            log.info("host.spool_merged", spool=path.name, results=len(ends), left=len(closed))


async def _merge_one(db: Database, kept: SpooledOutcome) -> None:
    """A result that the database will never accept must not block those after it. Raises DatabaseAway."""
    try:
        try:
            await db.write(partial(_finish, kept, await outcomes.packed(db, kept.outcome)), list)
        except RowsRefused as problem:
            log.error("host.result_refused", call=str(kept.call.uid), problem=str(problem)[:200])
            bare = replace(kept, outcome=outcomes.not_stored(kept.outcome, problem))
            await db.write(partial(_finish, bare), list)
    except (RowsOrphaned, RowsRefused) as problem:
        log.warning("host.spooled_result_dropped", call=str(kept.call.uid), problem=str(problem)[:200])


def _finish(kept: SpooledOutcome, row: Payload | None = None) -> list[Event]:
    return claims.finish(kept.call, kept.lease, kept.outcome, row)


def _read(path: Path) -> tuple[list[SpooledOutcome], list[bytes]]:
    """The readable outcomes, and the lines that the key ring cannot open. Skips a line that a machine crash
    truncated."""
    found, closed = [], []
    with path.open("rb") as lines:
        for line in lines:
            try:
                found.append(SpooledOutcome.of(line))
            except SealError as problem:
                log.warning("host.spool_line_not_opened", spool=path.name, problem=str(problem)[:200])
                closed.append(line)
            except (ValueError, KeyError, TypeError, AttributeError):
                log.warning("host.spool_line_unreadable", spool=path.name)
    return found, closed


def _replace(path: Path, data: bytes) -> None:
    """Replace the file. Its worker is gone, so no one appends to it."""
    new = path.with_suffix(".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        _write_whole(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.replace(path)
