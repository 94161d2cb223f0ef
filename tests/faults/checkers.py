"""Invariants that hold whatever was killed. They compare three histories: the server's record of its effects, our rows,
and what browsers received. Each function returns the violations as text; an empty list means success.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

#: for these states the page says that nothing reached the server
NEVER_SENT = frozenset({"not_sent", "expired", "refused"})
#: and for these that the server answered
ANSWERED = frozenset({"succeeded", "tool_error"})
#: one of so many calls succeeds although workers are killed, however slow the machine; elsewhere two of three do
LEAST_SUCCESSES = 20


@dataclass(frozen=True)
class Effect:
    id: str
    trace: str = "-"
    pid: int = 0


@dataclass(frozen=True)
class CallHistory:
    uid: str
    id: str
    state: str
    final: bool
    attempts: int
    events: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Fence:
    """A session that became ready, or a call that was sent, with the epoch of its server's session."""

    server: str
    sent: bool
    epoch: int


@dataclass
class Histories:
    effects: list[Effect] = field(default_factory=list)
    calls: list[CallHistory] = field(default_factory=list)
    #: uids of calls that a browser saw accepted
    accepted: set[str] = field(default_factory=set)
    #: in commit order
    fences: list[Fence] = field(default_factory=list)
    chain_whole: bool = True


def read_effects(file: Path) -> list[Effect]:
    lines = file.read_text().splitlines() if file.exists() else []
    parts = [line.split("\t") for line in lines if "\t" in line]
    return [Effect(identity, trace, int(pid)) for identity, trace, pid in parts]


def read_calls(rows: Iterable[dict[str, Any]]) -> list[CallHistory]:
    return [CallHistory(**row) for row in rows]


def read_fences(rows: Iterable[tuple[str, bool, int]]) -> list[Fence]:
    return [Fence(*row) for row in rows]


# --- effects against rows ----------------------------------------------------------------------------------------------
def effects_without_intent(told: Histories) -> list[str]:
    intents = {call.id for call in told.calls}
    return [f"effect {one.id} has no call" for one in told.effects if one.id not in intents]


def more_effects_than_attempts(told: Histories) -> list[str]:
    happened = Counter(one.id for one in told.effects)
    tried = {call.id: call for call in told.calls}
    return [
        f"call {tried[name].uid} had {count} effects in {tried[name].attempts} attempts"
        for name, count in happened.items()
        if name in tried and count > max(1, tried[name].attempts)
    ]


def effects_of_another_call(told: Histories) -> list[str]:
    """Where a server received a trace id, it matches the call's row."""
    owners = {call.id: call.uid.replace("-", "") for call in told.calls}
    strange = [one for one in told.effects if one.trace != "-" and one.trace != owners.get(one.id)]
    return [f"effect {one.id} carries the trace {one.trace}" for one in strange]


def states_that_lie(told: Histories) -> list[str]:
    happened = {one.id for one in told.effects}
    lies = [
        f"call {call.uid} is {call.state} and had its effect"
        for call in told.calls
        if call.state in NEVER_SENT and call.id in happened
    ]
    return lies + [
        f"call {call.uid} is {call.state} and never had its effect"
        for call in told.calls
        if call.state in ANSWERED and call.id not in happened
    ]


# --- rows alone --------------------------------------------------------------------------------------------------------
def calls_without_end(told: Histories) -> list[str]:
    return [f"call {call.uid} is still {call.state}" for call in told.calls if not call.final]


def accepted_without_row(told: Histories) -> list[str]:
    known = {call.uid for call in told.calls}
    return [f"call {uid} was accepted and has no row" for uid in sorted(told.accepted - known)]


def events_that_do_not_fit(told: Histories) -> list[str]:
    """One request event, one send event per attempt, one finish event."""
    wrong = []
    for call in told.calls:
        wanted = {"request": 1, "send": call.attempts, "finish": 1 if call.final else 0}
        found = {name: call.events.get(name, 0) for name in wanted}
        if found != wanted:
            wrong.append(f"call {call.uid} ({call.state}, {call.attempts} attempts) has the events {call.events}")
    return wrong


def sends_under_an_overtaken_epoch(told: Histories) -> list[str]:
    """A worker that lost its session to another one sends nothing more."""
    newest: dict[str, int] = {}
    wrong = []
    for fence in told.fences:
        if fence.sent and fence.epoch < newest.get(fence.server, 0):
            wrong.append(f"a call was sent under epoch {fence.epoch} after epoch {newest[fence.server]} had begun")
        newest[fence.server] = max(fence.epoch, newest.get(fence.server, 0))
    return wrong


def broken_chain(told: Histories) -> list[str]:
    return [] if told.chain_whole else ["the audit chain does not verify"]


CHECKERS: tuple[Callable[[Histories], list[str]], ...] = (
    effects_without_intent,
    more_effects_than_attempts,
    effects_of_another_call,
    states_that_lie,
    calls_without_end,
    accepted_without_row,
    events_that_do_not_fit,
    sends_under_an_overtaken_epoch,
    broken_chain,
)


def problems(told: Histories) -> list[str]:
    return [f"{checker.__name__}: {words}" for checker in CHECKERS for words in checker(told)]


# --- what the faults of a scene leave possible ---------------------------------------------------------------------------
def not_kept(told: Histories) -> list[str]:
    """For faults that keep no call from its server: each accepted call succeeds."""
    lost = Counter(call.state for call in told.calls if call.uid in told.accepted and call.state != "succeeded")
    return [f"{lost.total()} of {len(told.accepted)} accepted calls did not succeed: {dict(lost)}"] if lost else []


def too_few_successes(told: Histories, requested: int) -> list[str]:
    """For faults that end calls at random: a run in which all calls are refused or lost contradicts nothing else."""
    succeeded = sum(call.state == "succeeded" for call in told.calls)
    few = succeeded * LEAST_SUCCESSES < max(requested, 1)
    return [f"{succeeded} of {requested} requested calls succeeded"] if few else []


# --- browsers ----------------------------------------------------------------------------------------------------------
def gaps(seqs: list[int], newest: int, first: int = 1) -> list[str]:
    """What a tab that listened from the first row did not receive exactly once and in order."""
    wanted = range(first, newest + 1)
    if seqs == list(wanted):
        return []
    missing = sorted(set(wanted) - set(seqs))
    twice = sorted(number for number, count in Counter(seqs).items() if count > 1)
    order = [f"{later} after {earlier}" for earlier, later in pairwise(seqs) if later < earlier]
    found: list[tuple[str, list[Any]]] = [
        ("missing", missing),
        ("twice", twice),
        ("out of order", order),
        ("beyond", [n for n in seqs if n > newest]),
    ]
    return [f"{word}: {values[:10]} ({len(values)})" for word, values in found if values]


# --- resources -------------------------------------------------------------------------------------------------------
def left_behind(before: dict[str, int], after: dict[str, int], room: dict[str, int] | None = None) -> list[str]:
    """Counts above their baseline. `room` is how much each may grow."""
    allowed = room or {}
    return [
        f"{name}: {before.get(name, 0)} before, {count} after"
        for name, count in after.items()
        if count > before.get(name, 0) + allowed.get(name, 0)
    ]
