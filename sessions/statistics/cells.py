"""Maps calls to cells: which roll-ups a final call belongs to, and which latency bucket."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from django.db.models import QuerySet

from sessions.enums import CallState
from sessions.models import Call
from sessions.models.statistics import LATENCY_BOUNDS_MS, RollupBy, RollupLevel

#: one for each bound, and one for slower calls
BUCKETS: Final = len(LATENCY_BOUNDS_MS) + 1
BUCKET_COLUMNS: Final = (*(f"within_{bound}" for bound in LATENCY_BOUNDS_MS), "beyond")
LEVELS: Final = tuple(RollupLevel)


@dataclass(frozen=True, slots=True)
class CountedCall:
    """The part of a call that roll-ups count."""

    pk: int
    at: int  # Unix time in seconds
    server_uid: UUID | None
    server_name: str
    target: str
    user_name: str
    owner_id: int
    method: str
    way: str
    state: str
    bytes: int
    bucket: int | None  # None if it was never sent

    @property
    def final(self) -> bool:
        return CallState(self.state).final


@dataclass(frozen=True, slots=True)
class Cell:
    """The dimensions of a roll-up. Those that `by` does not include are empty."""

    by: str
    server_uid: UUID | None
    server_name: str
    target: str
    user_name: str
    owner_id: int
    method: str
    way: str
    state: str

    @property
    def digest(self) -> str:
        words = (self.by, str(self.server_uid or self.server_name), self.target, self.user_name)
        text = "\0".join((*words, str(self.owner_id), self.method, self.way, self.state))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(slots=True)
class Tally:
    calls: int = 0
    bytes: int = 0
    latency: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, call: CountedCall) -> None:
        self.calls += 1
        self.bytes += call.bytes
        if call.bucket is not None:
            self.latency[call.bucket] += 1


def bucket_of(milliseconds: float) -> int:
    return bisect_left(LATENCY_BOUNDS_MS, milliseconds)


def percentile(latency: Sequence[int], share: float) -> float | None:
    """Milliseconds within which `share` of the calls answered, interpolated inside the bucket. None without calls."""
    total = sum(latency)
    if not total:
        return None
    rank, before = share * total, 0
    for place, count in enumerate(latency):
        if count and before + count >= rank:
            low = LATENCY_BOUNDS_MS[place - 1] if place else 0
            high = LATENCY_BOUNDS_MS[place] if place < len(LATENCY_BOUNDS_MS) else low
            return low + (high - low) * max(0.0, rank - before) / count
        before += count
    return float(LATENCY_BOUNDS_MS[-1])


def cells_of(call: CountedCall) -> Iterable[Cell]:
    cell = Cell(RollupBy.TOTAL, None, "", "", "", call.owner_id, call.method, call.way, call.state)
    server = replace(cell, by=RollupBy.SERVER, server_uid=call.server_uid, server_name=call.server_name)
    yield cell
    yield server
    yield replace(server, by=RollupBy.TOOL, target=call.target)
    yield replace(cell, by=RollupBy.CALLER, user_name=call.user_name)


def read(calls: "QuerySet[Call]") -> list[CountedCall]:
    rows = calls.values_list(
        "pk",
        "created_at",
        "server__uid",
        "server_name",
        "target",
        "user_name",
        "user_id",
        "personal",
        "method",
        "way",
        "state",
        "total_bytes",
        "sent_at",
        "duration_ms",
    )
    return [
        CountedCall(
            pk=pk,
            at=int(created.timestamp()),
            server_uid=server_uid,
            server_name=server_name,
            target=target,
            user_name=user_name,
            owner_id=(user_id or -1) if personal else 0,  # -1: the user was deleted; only for those who see all
            method=method,
            way=way,
            state=state,
            bytes=size,
            bucket=None if sent is None or took is None else bucket_of(took),
        )
        for (
            pk,
            created,
            server_uid,
            server_name,
            target,
            user_name,
            user_id,
            personal,
            method,
            way,
            state,
            size,
            sent,
            took,
        ) in rows
    ]
