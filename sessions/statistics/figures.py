"""What can be asked of the roll-ups (`Dimensions`, `Range`), and the figures that answer."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from sessions.enums import UNSENT, CallState
from sessions.models.statistics import RollupBy
from sessions.statistics.cells import BUCKETS, percentile

SUCCEEDED: Final = frozenset({CallState.SUCCEEDED.value})
#: neither a success nor an error
NEUTRAL: Final = frozenset({CallState.CANCELLED.value, *(state.value for state in UNSENT), CallState.SENT.value})


@dataclass(frozen=True)
class Dimensions:
    """Which calls to count. None and empty mean any. At most one of server (with or without a tool) and caller can be
    given: roll-ups of both together do not exist."""

    server: UUID | None = None
    servers: frozenset[UUID] = frozenset()
    tool: str | None = None
    caller: str | None = None
    methods: frozenset[str] = frozenset()
    ways: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    without_methods: frozenset[str] = frozenset()

    @property
    def by(self) -> RollupBy:
        """Raises ValueError for a combination that no roll-up distinguishes."""
        of_server = self.server is not None or bool(self.servers)
        if self.caller is not None and (of_server or self.tool is not None):
            raise ValueError("roll-ups tell callers and servers apart, but not both together")
        if self.caller is not None:
            return RollupBy.CALLER
        if self.tool is not None:
            return RollupBy.TOOL
        return RollupBy.SERVER if of_server else RollupBy.TOTAL


@dataclass
class Numbers:
    """Sums of one group."""

    states: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    latency: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, state: str, calls: int, size: int, latency: Sequence[int]) -> None:
        """`latency` may be empty: not asked for."""
        self.states[state] = self.states.get(state, 0) + calls
        self.bytes += size
        if latency:
            self.add_latency(latency)

    def add_latency(self, latency: Sequence[int]) -> None:
        self.latency = [one + more for one, more in zip(self.latency, latency, strict=True)]

    def add_all(self, other: "Numbers") -> None:
        for state, calls in other.states.items():
            self.states[state] = self.states.get(state, 0) + calls
        self.bytes += other.bytes
        self.add_latency(other.latency)

    @property
    def calls(self) -> int:
        return sum(self.states.values())

    @property
    def errors(self) -> int:
        return sum(count for state, count in self.states.items() if state not in SUCCEEDED | NEUTRAL)

    @property
    def error_percent(self) -> float | None:
        return round(100 * self.errors / self.calls, 1) if self.calls else None

    @property
    def p50(self) -> float | None:
        return percentile(self.latency, 0.50)

    @property
    def p95(self) -> float | None:
        return percentile(self.latency, 0.95)

    @property
    def p99(self) -> float | None:
        return percentile(self.latency, 0.99)


@dataclass(frozen=True)
class Range:
    """Unix times; `until` is not included."""

    since: int
    until: int

    @classmethod
    def of(cls, since: datetime, until: datetime) -> "Range":
        first = int(since.timestamp())
        return cls(first, max(first, math.ceil(until.timestamp())))


@dataclass(frozen=True)
class Series:
    """One `Numbers` for each step from `start` on. `behind`: the counting lags and the newest calls are missing."""

    start: datetime
    step: int
    points: list[Numbers]
    behind: bool


@dataclass
class Counts:
    calls: int = 0
    errors: int = 0

    def add(self, calls: int, errors: int) -> None:
        self.calls += calls
        self.errors += errors


@dataclass(frozen=True)
class ServerSeries:
    """As `Series`: one for all calls together, and one for each of some servers, in the order in which they were
    chosen. `counts`: for each server that had calls, including deleted ones."""

    start: datetime
    step: int
    total: list[Numbers]
    servers: dict[UUID, list[Numbers]]
    counts: dict[UUID, Counts]
    behind: bool


@dataclass
class Bars:
    """One server's sums for the range, and its calls and errors in each step."""

    total: Numbers
    steps: list[Counts]


@dataclass(frozen=True)
class ServerBars:
    """One entry for each requested server, including those without calls."""

    servers: dict[UUID, Bars]
    behind: bool


class Group(NamedTuple):
    """A group of a ranking. Only the fields that distinguish its groups are set."""

    server_uid: UUID | None = None
    server_name: str = ""
    target: str = ""
    user_name: str = ""


@dataclass(frozen=True)
class Ranking:
    """Groups by number of calls, largest first."""

    rows: list[tuple[Group, Numbers]]
    behind: bool


@dataclass(frozen=True)
class ValueCounts:
    """Numbers of calls: for each kind of roll-up one for each of its values. A kind with too many roll-ups is missing."""

    calls: dict[RollupBy, Counter[tuple[Any, ...]]]
    behind: bool
