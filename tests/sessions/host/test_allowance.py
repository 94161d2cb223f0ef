"""Changed lists are read at once if a server changes them occasionally, and rarely if it never stops."""

import asyncio
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from servers.definitions.listing import CheckedListing
from servers.definitions.versions import Counts
from servers.enums import DefinitionKind
from sessions.catalog.reading import Note
from sessions.host.catalog import refresh
from sessions.host.catalog.refresh import BURST, INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS, Allowance, Catalog
from sessions.host.db import Database, DatabaseAway
from sessions.mcp.core.events import ListKind


def test_a_list_that_changes_a_second_time_is_read_at_once_again() -> None:
    allowance = Allowance(BURST, INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS)
    for now in (0.0, 0.4, 0.8):  # the session opens, and two changes follow at once
        assert allowance.wait(now) == 0.0
        allowance.take(now)


def test_a_server_that_changes_its_lists_all_the_time_is_asked_once_an_interval() -> None:
    allowance, now, reads = Allowance(5, 5.0, 300.0), 0.0, 0
    while now < 100.0:
        now += allowance.wait(now)
        allowance.take(now)
        allowance.found(news=True)
        reads += 1
        now += 0.1
    assert reads <= 5 + 100 / 5


def test_after_a_quiet_time_readings_are_at_once_again() -> None:
    allowance = Allowance(2, 5.0, 300.0)
    allowance.take(0.0)
    allowance.take(0.0)
    assert allowance.wait(1.0) == 4.0
    assert allowance.wait(10.0) == 0.0
    allowance.refill()
    assert allowance.wait(0.0) == 0.0


def test_a_server_that_tells_of_changes_and_has_none_is_asked_ever_more_seldom() -> None:
    """A gateway that starts a process per request announces a change with every list request."""
    allowance, now, times = Allowance(5, 5.0, 300.0), 0.0, []
    while now < 3_600.0:
        now += allowance.wait(now)
        times.append(now)
        allowance.take(now)
        allowance.found(news=False)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[:4] == [0.0] * 4
    assert pauses[-1] == 300.0
    assert len(times) < 30
    allowance.found(news=True)
    assert allowance.wait(now + 5.0) == 0.0


class CountedCatalog(Catalog):
    """Reads nothing, and records the order of each read."""

    def __init__(self) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, nothing, nothing)
        self.reads: asyncio.Queue[int] = asyncio.Queue()
        self.told: asyncio.Queue[list[str]] = asyncio.Queue()
        self.announces: list[ListKind] = []

    async def _read(self, kinds: list[DefinitionKind], request_number: int) -> bool:
        self.reads.put_nowait(request_number)
        for kind in self.announces:
            self.changed(kind)
        return False

    def _tell(self, lists: list[str]) -> None:
        self.told.put_nowait(lists)


async def test_what_a_server_announces_is_passed_on_but_not_what_reading_its_list_caused() -> None:
    """Some gateways announce a change with each list request: passed on, that would go round for ever."""
    catalog = CountedCatalog()
    catalog.announces = [ListKind.TOOLS]
    catalog.opened(1)
    async with asyncio.timeout(60):
        for _ in range(3):  # each read causes the next announcement, and that a read
            await catalog.reads.get()
        catalog.changed(ListKind.PROMPTS)
        catalog.changed(ListKind.PROMPTS)
        assert await catalog.told.get() == ["prompts"]
    assert catalog.told.empty()
    await catalog.close()


async def test_an_announcement_is_passed_on_although_the_next_read_has_to_wait() -> None:
    catalog = CountedCatalog()
    catalog._allowance = Allowance(1, 3600.0, 3600.0)
    catalog.opened(1)
    await catalog.reads.get()
    async with asyncio.timeout(60):
        catalog.changed(ListKind.PROMPTS)
        catalog._read_ended.clear()
        catalog.changed(ListKind.RESOURCES)
        assert await catalog.told.get() == ["resources"]
    assert catalog.reads.empty()
    await catalog.close()


async def test_a_person_who_asks_does_not_wait_for_the_pause_of_a_server_that_reports_changes_all_the_time() -> None:
    catalog = CountedCatalog()
    catalog._allowance = Allowance(1, 3600.0, 3600.0)
    catalog.opened(1)
    assert await catalog.reads.get() == 1
    catalog.changed()
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        catalog.refresh(2)
        assert await catalog.reads.get() == 2
    catalog.changed()
    assert catalog.reads.empty()
    await catalog.close()


async def test_a_list_waits_for_a_database_that_is_away_and_is_never_compared_by_the_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refresh, "COMPARE_AGAIN_SECONDS", (0.0, 0.0))
    found = CheckedListing(DefinitionKind.TOOL, {}, differs=False)
    answers: list[CheckedListing | None] = [None, None, found]

    class Away:
        async def read(self, job: Any) -> CheckedListing:
            answer = answers.pop(0)
            if answer is None:
                raise DatabaseAway("It did not answer in time.")
            return answer

    catalog = CountedCatalog()
    catalog._db = cast("Database", Away())
    assert await catalog._compared(DefinitionKind.TOOL, []) is found
    assert answers == []


class SlowCatalog(Catalog):
    """Its server sends its tools at once, and its resources when it is allowed to."""

    def __init__(self) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, nothing, nothing)
        self.may_go_on = asyncio.Event()
        self.recorded: list[tuple[int | None, list[DefinitionKind]]] = []
        self._icons = cast(Any, AsyncMock(look=lambda: None))

    async def _kinds_known(self) -> frozenset[DefinitionKind]:
        return frozenset()

    async def _read_list(self, kind: DefinitionKind) -> Note:
        if kind is not DefinitionKind.TOOL:
            await self.may_go_on.wait()
        return Note(datetime.now(UTC), Counts(added=1, first=kind is DefinitionKind.TOOL))

    async def _record(self, request_number: int | None, kinds: list[DefinitionKind]) -> None:
        self.recorded.append((request_number, kinds))


async def test_a_call_waits_only_for_the_list_that_has_its_tool() -> None:
    catalog = SlowCatalog()
    catalog.opened(1)
    assert catalog.unread == set(DefinitionKind)
    others = [kind for kind in DefinitionKind if kind is not DefinitionKind.TOOL]
    async with asyncio.timeout(60):
        assert await catalog.catch_up(DefinitionKind.TOOL)
        assert catalog.unread == set(others)
        await asyncio.sleep(0)
        assert catalog.recorded == [(None, [DefinitionKind.TOOL])], "agents get the first list of tools"
        catalog.may_go_on.set()
        assert await catalog.catch_up(DefinitionKind.PROMPT)
        assert not catalog.unread
    await asyncio.sleep(0)
    assert catalog.recorded[1:] == [(1, others)]
    await catalog.close()
