"""Idle connections, however many, leave the site reachable."""

import asyncio
import contextlib
import resource
import selectors
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from mcpadmin.web.connections import MOST_HELD_BYTES, Connections
from mcpadmin.web.daphne import connections, require_scalable_loop
from servers.requests import counted_address
from tests.mcpadmin.web.raw import Raw
from tests.sessions.live.site import Site, Tab


@dataclass(eq=False)
class Visitor:
    address: str
    untaken: int = 0
    gone: bool = False

    def give_way(self) -> None:
        self.gone = True


def test_fourteen_hundred_idle_connections_of_one_address_leave_the_site_reachable(site: Site) -> None:
    idle = []
    for number in range(1_400):
        raw = Raw(site)
        raw.send(b"" if number % 2 else b"GET / HTTP/1.1\r\n")  # silent and half-sent ones
        idle.append(raw)
    assert httpx.get(f"{site.origin}/healthz", timeout=20).status_code == 200
    assert len(list(Path(f"/proc/{site.web.pid}/fd").iterdir())) < 250, "the bound per address is 100"
    assert idle[0].is_closed(), "the longest idle gave way"
    for raw in idle:
        raw.socket.close()
    httpx.get(f"{site.origin}/healthz", timeout=20)  # by now the web has read their ends: the next test is alone


def test_the_web_may_open_more_files_than_most_systems_allow_at_first(site: Site) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert resource.prlimit(site.web.pid, resource.RLIMIT_NOFILE)[0] == min(hard, 65_536) > 1_024


def test_a_connection_that_waits_for_its_answer_does_not_give_way() -> None:
    found = Connections(most=2, most_per_address=0)
    busy, idle, third, fourth = (Visitor(f"192.0.2.{number}") for number in range(4))
    assert (found.add(busy), found.add(idle)) == ("", "")
    found.busy(busy)
    assert found.add(third) == ""
    assert (busy.gone, idle.gone) == (False, True)
    found.busy(third)
    assert found.add(fourth) == "connections"


def test_one_address_cannot_push_out_the_idle_connections_of_another() -> None:
    found = Connections(most=100, most_per_address=3)
    other = Visitor("198.51.100.1")
    found.add(other)
    mine = [Visitor("192.0.2.1") for _ in range(10)]
    assert {found.add(one) for one in mine} == {""}
    assert not other.gone
    assert [one.gone for one in mine] == [True] * 7 + [False] * 3


def test_a_connection_that_became_idle_last_gives_way_last() -> None:
    found = Connections(most=2, most_per_address=0)
    first, second, third = (Visitor("192.0.2.1") for _ in range(3))
    found.add(first)
    found.add(second)
    found.busy(first)
    found.idle(first)
    found.add(third)
    assert (first.gone, second.gone) == (False, True)


def test_what_is_closed_no_longer_counts() -> None:
    found = Connections(most=10, most_per_address=1)
    one = Visitor("192.0.2.1")
    found.add(one)
    found.busy(one)
    assert found.add(Visitor("192.0.2.1")) == "connections_per_address"
    found.remove(one)
    assert len(found) == 0
    assert found.add(Visitor("192.0.2.1")) == ""


def test_of_unread_answers_the_largest_of_the_address_that_has_most_give_way() -> None:
    found = Connections(most=100, most_per_address=0)
    part = MOST_HELD_BYTES // 10
    other, small = Visitor("198.51.100.1", 4 * part), Visitor("192.0.2.1", part // 2)
    mine = [Visitor("192.0.2.1", part) for _ in range(9)]
    for one in (other, small, *mine):
        found.add(one)
        found.hold(one)
    assert (other.gone, small.gone) == (False, False)
    assert len([one for one in mine if one.gone]) == 4
    assert len(found) == 7
    other.untaken = 0
    last = Visitor("203.0.113.1", 4 * part)
    found.add(last)
    found.hold(last)
    assert not last.gone, "what was taken meanwhile no longer counts"


def test_behind_a_proxy_the_bound_of_an_address_does_not_hit_the_proxy() -> None:
    found = connections(65_536, behind_proxy=True)
    visitors = [Visitor("10.0.0.1") for _ in range(4_000)]
    for one in visitors:
        found.add(one)
        found.busy(one)
    assert len(found) == 4_000
    assert found.add(Visitor("10.0.0.1")) == ""


def test_where_the_system_allows_few_files_there_are_fewer_connections_and_none_takes_all_the_room() -> None:
    found = connections(1_024, behind_proxy=False)
    assert (found.most, found.most_per_address) == (768, 576)


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_visitor_is_counted_by_the_network_that_is_surely_one_visitors(host: str, counted: str) -> None:
    assert counted_address(host) == counted


@pytest.fixture
def cramped(site: Site) -> Iterator[Site]:
    """The site with room for three connections of an address."""
    before = site.env
    site.env = before | {"MCPADMIN_CONNECTIONS_PER_ADDRESS": "3"}
    site.restart_web()
    yield site
    site.env = before
    site.restart_web()


async def test_a_connection_beyond_the_limit_of_its_address_is_told_which_limit_it_met(cramped: Site) -> None:
    browser = cramped.browser("ada")
    tickets = [await browser.ticket() for _ in range(3)]
    async with contextlib.AsyncExitStack() as open_sockets:
        for ticket in tickets:  # a live connection is busy, so none is closed to make room
            tab = Tab(await open_sockets.enter_async_context(browser.dial()))
            await tab.say(op="hello", ticket=ticket, v=1)
            await tab.hear(lambda message: message.get("op") == "welcome")
        with Raw(cramped) as raw:
            answer = await asyncio.to_thread(raw.answer)
    assert answer.status == 503
    assert "Limit: 3 connections per address and web process" in answer.text
    assert "MCPADMIN_CONNECTIONS_PER_ADDRESS" in answer.text


def test_a_loop_that_is_limited_to_1023_descriptors_is_refused() -> None:
    class Loop:
        _selector = selectors.SelectSelector()

    with pytest.raises(SystemExit, match="needs epoll"):
        require_scalable_loop(Loop())
