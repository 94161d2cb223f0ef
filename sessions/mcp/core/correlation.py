"""Matches answers to requests: ids, deadlines, progress tokens, and requests that were given up.

No clock: the caller passes every point in time, in seconds.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from .errors import TooManyPending
from .jsonrpc import RequestId


@dataclass(slots=True)
class Deadline:
    """An idle limit of `idle` seconds that progress renews, never beyond `total_at`."""

    idle: float
    expires_at: float
    total_at: float

    @classmethod
    def starting(cls, now: float, idle: float, total: float) -> "Deadline":
        return cls(idle, now + (idle if idle < total else total), now + total)

    def extend(self, now: float) -> float:
        self.expires_at = min(now + self.idle, self.total_at)
        return self.expires_at

    def left(self, now: float) -> float:
        """Seconds left of the idle time."""
        return max(0.0, self.expires_at - now)

    def resume(self, now: float, left: float) -> float:
        """Resume the idle time with the `left` seconds it had when it was paused. The total time was not paused."""
        self.expires_at = min(now + left, self.total_at)
        return self.expires_at


@dataclass(slots=True, eq=False)
class Pending:
    """One request in flight. `waiter` belongs to the caller; this module never reads it."""

    id: RequestId
    method: str
    tag: Any = None
    waiter: Any = None
    wants_progress: bool = False
    last_progress: float = field(default=float("-inf"))


@dataclass(frozen=True, slots=True)
class Tombstone:
    method: str
    tag: Any


class Correlation:
    """Requests in flight, and a bounded record of those given up."""

    def __init__(self, max_pending: int, max_tombstones: int = 1024) -> None:
        self._max_pending = max_pending
        self._max_tombstones = max_tombstones
        self._pending: dict[RequestId, Pending] = {}
        self._tombstones: OrderedDict[RequestId, Tombstone] = OrderedDict()
        self._kept: dict[RequestId, Pending] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, method: str, tag: Any, *, wants_progress: bool) -> Pending:
        """Register a new request; TooManyPending at the bound. Ids are integers that count up for the whole session,
        across reconnects, because some bridges read any id as a number."""
        if len(self._pending) >= self._max_pending:
            raise TooManyPending(f"{self._max_pending} requests to this server are already in flight.")
        identity = self._next
        self._next += 1
        pending = Pending(identity, method, tag, None, wants_progress)
        self._pending[identity] = pending
        return pending

    def take(self, identity: RequestId | None) -> Pending | None:
        """Remove and return the request that this id answers. The type of the id must match exactly."""
        pending = self._pending.get(identity) if identity is not None else None
        if pending is None or type(pending.id) is not type(identity):
            return None
        del self._pending[pending.id]
        return pending

    def echoed(self, identity: RequestId | None) -> int | None:
        """Our id that this string repeats: some servers write each id as a string. None for any other string."""
        if type(identity) is not str or not (identity.isascii() and identity.isdigit() and len(identity) < 20):
            return None
        number = int(identity)
        ours = str(number) == identity and (number in self._pending or number in self._tombstones)
        return number if ours else None

    def find(self, identity: RequestId) -> Pending | None:
        pending = self._pending.get(identity)
        return pending if pending is not None and type(pending.id) is type(identity) else None

    def all(self) -> list[Pending]:
        return list(self._pending.values())

    def drop(self, pending: Pending) -> None:
        """Forget a request whose answer can no longer arrive."""
        self._pending.pop(pending.id, None)

    def give_up(self, pending: Pending) -> None:
        """Forget a request whose answer may still arrive. A tombstone marks that answer as late."""
        if self._pending.pop(pending.id, None) is None:
            return
        self._tombstones[pending.id] = Tombstone(pending.method, pending.tag)
        if len(self._tombstones) > self._max_tombstones:
            self._tombstones.popitem(last=False)

    def take_tombstone(self, identity: RequestId | None) -> Tombstone | None:
        return self._tombstones.pop(identity, None) if identity is not None else None

    def progressed(self, token: Any, progress: float) -> Pending | None:
        """The request that this token belongs to, if it wants progress and the value increased."""
        pending = (self.find(token) or self._kept_token(token)) if isinstance(token, (int, str)) else None
        if pending is None or not pending.wants_progress or not progress > pending.last_progress:
            return None
        pending.last_progress = progress
        return pending

    def keep_token(self, identity: RequestId, tag: Any) -> None:
        """Accept progress of this request after its answer, because it became a task."""
        self._kept[identity] = Pending(identity, "", tag, None, wants_progress=True)

    def drop_token(self, identity: RequestId) -> None:
        self._kept.pop(identity, None)

    def _kept_token(self, token: RequestId) -> Pending | None:
        kept = self._kept.get(token)
        return kept if kept is not None and type(kept.id) is type(token) else None

    def drain(self) -> list[Pending]:
        """Remove and return all requests in flight."""
        everything = list(self._pending.values())
        self._pending.clear()
        return everything
