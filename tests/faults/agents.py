"""Agents of both eras call while workers, web processes and Valkey are killed and streams are cut: each effect happens
at most once, each call has its end, and each agent knows what became of each of its calls."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from tests.faults.checkers import Histories
from tests.faults.field import Field
from tests.faults.plant import http_effects, plant
from tests.faults.programs import ERAS, Note, Notes, Program, Told
from tests.faults.size import Report, Size

NODES = ("w1", "w2")
EACH = 5
BUNDLE = "every"
LONGEST_CALL = 0.3
PROMISED_SECONDS = 30.0
AWAY_SECONDS = 2.0
Fault = Callable[[Field], Awaitable[None]]


@dataclass
class Pace:
    """Calls and faults keep step: a series of faults is spread over the calls, and no call overtakes one that is due."""

    calls: int
    started: int = 0
    #: of each series: the number of calls that may start before its next fault is over
    allowed: dict[str, int] = field(default_factory=dict)
    _moved: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def start(self) -> int | None:
        """The number of the next call. None: all have started."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.started < min([self.calls, *self.allowed.values()]) or self._all)
            if self._all:
                return None
            self.started += 1
            self._moved.notify_all()
            return self.started

    @property
    def _all(self) -> bool:
        return self.started >= self.calls

    async def spread(self, field: Field, fault: Fault, name: str, count: int) -> None:
        """Each fault hits a random call within its share of the calls."""
        for number in range(count):
            due = self.calls * (number + field.dice.uniform(0.1, 0.9)) / count
            async with self._moved:
                self.allowed[name] = round(self.calls * (number + 1) / count)
                self._moved.notify_all()
                await self._moved.wait_for(lambda due=due: self.started >= due)  # type: ignore[misc]  # bound now
            await fault(field)
        async with self._moved:
            del self.allowed[name]
            self._moved.notify_all()


async def kill_under_agents(
    size: Size, calls: int = 10_000, agents: int = 50, servers: int = 20
) -> tuple[list[str], Report]:
    """At full size 10,000 calls of 50 agents over 20 servers, with 20 workers, 10 web processes and 3 times Valkey killed."""
    agents, servers = size.count(agents, 8), max(4, 4 * round(size.count(servers, 4) / 4))
    notes = Notes()
    async with set_up(size, agents, servers, notes) as (field, programs):
        began, pace, running = time.monotonic(), Pace(size.count(calls, 240)), field.running
        kills = {"worker": size.count(20, 2), "web": size.count(10), "Valkey": size.count(3)}
        faults = {"worker": _kill_worker, "web": _kill_web, "Valkey": _kill_valkey}
        series = [pace.spread(field, faults[name], name, count) for name, count in kills.items()]
        working = asyncio.create_task(_all_work(programs, pace, field))
        await asyncio.gather(*series)
        ended = await field.off_loop(running.do, "now")
        wrong = await working
        took = time.monotonic() - began
        if wrong:
            field.report.say(gave_up=len(wrong), **figures(notes))
            field.report.print()
        await field.ready()
        wrong += await field.judged() + contradictions(notes, field.told)
        slowest = await field.off_loop(running.do, "last_end_after", ended)
        wrong += [f"a call ended {slowest:.1f} s after the last fault"] * (slowest > size.promise(PROMISED_SECONDS))
        field.summary()
        field.report.say(agents=agents, servers=servers, kills=kills, seconds=took, **figures(notes))
        field.report.say(last_end_after_the_faults_seconds=slowest, doubled=doubled(notes, field.told))
        field.report.say(slowest_call_seconds=await field.off_loop(running.do, "slowest_call"))
        return wrong, field.report


async def _all_work(programs: list[Program], pace: Pace, field: Field) -> list[str]:
    """Of each agent that gave up: what it tried. At the first one, while what it waited for may still be so, the database
    says what goes on in it."""
    tasks = [asyncio.create_task(_work(program, pace, field)) for program in programs]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    if any(task.exception() for task in done):
        lines = await field.off_loop(field.running.database.activity)
        print("\nconnections to the database when an agent gave up:", *lines, sep="\n")
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    return [
        f"{program.name} gave up with {end!r} after: {'; '.join(program.tries[-20:])}"
        for program, end in zip(programs, ends, strict=True)
        if isinstance(end, BaseException)
    ]


async def _work(program: Program, pace: Pace, field: Field) -> None:
    while (number := await pace.start()) is not None:
        await program.do(f"effect-{number}", field.dice.uniform(0, LONGEST_CALL))


# --- faults --------------------------------------------------------------------------------------------------------------
async def _kill_worker(field: Field) -> None:
    node = field.dice.choice(NODES)
    await field.off_loop(field.running.kill_worker, node)
    await field.off_loop(field.running.start_worker, node)


async def _kill_web(field: Field) -> None:
    await field.off_loop(field.running.kill_web)
    await field.off_loop(field.running.start_web)


async def _kill_valkey(field: Field) -> None:
    await field.off_loop(field.running.kill_valkey)
    await asyncio.sleep(AWAY_SECONDS)
    await field.off_loop(field.running.start_valkey)


# --- set-up --------------------------------------------------------------------------------------------------------------
@asynccontextmanager
async def set_up(size: Size, agents: int, servers: int, notes: Notes) -> AsyncIterator[tuple[Field, list[Program]]]:
    """A quarter of the servers of each kind: stdio and HTTP in both eras. Two agents in five use the bundle of all, the
    others a server's own endpoint."""
    async with AsyncExitStack() as stack:
        running = await asyncio.to_thread(stack.enter_context, plant())
        urls = [await stack.enter_async_context(http_effects(running, era)) for era in ("legacy", "modern")]
        slugs, uids = [], []
        for number in range(servers // 4):
            for era, url in zip(("legacy", "modern"), urls, strict=True):
                slugs += [f"stdio-{era}-{number}", f"http-{era}-{number}"]
                uids.append(await asyncio.to_thread(running.register_effects, slugs[-2], era=era))
                uids.append(await asyncio.to_thread(running.register_effects, slugs[-1], url=url))
        people = [f"person{number}" for number in range(-(-agents // EACH))]
        tokens = await asyncio.to_thread(running.do, "programs", people, EACH, BUNDLE, slugs)
        for node in NODES:
            await asyncio.to_thread(running.start_worker, node)
        await asyncio.to_thread(running.await_ready, *uids)
        report, dice = Report("agents, all parts SIGKILL", size), size.dice("agents")
        programs = [
            ERAS[number % 2](
                running.origin,
                BUNDLE if number % 5 < 2 else slugs[number // 2 % servers],
                token,
                size.dice(token),
                notes,
            )
            for number, token in enumerate(itertools.islice(tokens, agents))
        ]
        for program in programs:
            stack.push_async_callback(program.close)
        await asyncio.gather(*(program.open() for program in programs))
        yield Field(running, uids, [], dice, report), programs


# --- the end -------------------------------------------------------------------------------------------------------------
def contradictions(notes: Notes, told: Histories) -> list[str]:
    """Compares what the agents were told with what happened."""
    happened = {one.id for one in told.effects}
    states = {call.id: call.state for call in told.calls}
    wrong = [
        f"{note.effect} ({states.get(note.effect, 'no row')}): {words}"
        for note in notes.calls
        if (words := _contradiction(note, happened=note.effect in happened))
    ]
    known = {call.uid for call in told.calls}
    wrong += [
        f"an agent was told of call {one.call}, which has no row" for one in notes.calls if one.call not in known | {""}
    ]
    return wrong + [f"{task} was done {count} times" for task, count in _times_done(notes, told).items() if count > 1]


def _contradiction(note: Note, *, happened: bool) -> str:
    if note.told is Told.NOTHING:
        return "its agent was never answered"
    if note.told is Told.STRANGE:
        return f"its agent was told {note.words[:300]}"
    if note.told is Told.SUCCEEDED and not happened:
        return "its agent was told that it succeeded, and it had no effect"
    if note.told is Told.NOT_RUN and happened:
        return f"its agent was told that it did not run, and it had its effect: {note.words[:200]}"
    return ""


def _times_done(notes: Notes, told: Histories) -> Counter[str]:
    tasks = {note.effect: note.task for note in notes.calls}
    return Counter(tasks.get(one.id, one.id) for one in told.effects)


def doubled(notes: Notes, told: Histories) -> int:
    return sum(count > 1 for count in _times_done(notes, told).values())


def figures(notes: Notes) -> dict[str, object]:
    counts = Counter(note.told for note in notes.calls)
    return {
        "answered": counts[Told.SUCCEEDED],
        "unknown": counts[Told.UNKNOWN],
        "not_run_and_made_anew": counts[Told.NOT_RUN],
        "refused": dict(notes.refused),
        "connections_lost": dict(notes.lost),
        "resumed": notes.resumed,
        "asked_again": notes.asked_again,
    }
