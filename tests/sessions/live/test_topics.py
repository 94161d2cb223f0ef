"""What a socket receives: feeds without gaps, snapshots by version, and nothing its user may not see."""

import asyncio
import random
import re
import socket
import uuid
from typing import Any

import pytest
from django.conf import settings

from sessions.live import topics
from sessions.live.outbox import STUCK_SECONDS
from tests.sessions.live.site import Browser, Site, Tab

PERMISSIONS = ["view_server", "call_tool", "view_payload", "view_auditevent"]


def person(site: Site, permissions: list[str] = PERMISSIONS) -> Browser:
    name = f"u-{uuid.uuid4().hex[:8]}"
    site.do("user", name, permissions)
    return site.browser(name)


async def until_seq(tab: Tab, topic: str, seq: int) -> None:
    await until_seq_within(tab, topic, seq, 25)


async def until_seq_within(tab: Tab, topic: str, seq: int, seconds: float) -> None:
    if tab.seqs(topic)[-1:] != [seq]:
        await tab.hear(lambda message: message.get("t") == topic and message.get("seq") == seq, seconds)


async def moved(tab: Tab, server: str) -> None:
    """A frame after the first that says so of this server, or does not say of which."""

    def says_so(frame: dict[str, Any]) -> bool:
        named = frame["rows"][0]["servers"]
        return named is None or server in named

    if not any(map(says_so, tab.frames("servers", "moved")[1:])):
        await tab.hear(lambda message: message.get("t") == "servers" and says_so(message))


async def test_audit_rows_arrive_live_and_in_order(site: Site) -> None:
    ada = person(site)
    start = site.do("newest")
    async with ada.tab() as tab:
        await tab.sub("audit", start)
        end = site.do("record", 40)
        await until_seq(tab, "audit", end)
        assert tab.seqs("audit") == list(range(start + 1, end + 1))


async def test_no_audit_row_is_missed_across_a_reconnect(site: Site) -> None:
    ada = person(site)
    start = site.do("newest")
    async with ada.tab() as first:
        await first.sub("audit", start)
        middle = site.do("record", 5)
        await until_seq(first, "audit", middle)
        seen = first.seqs("audit")
    end = site.do("record", 700, batch=100)
    async with ada.tab() as second:
        await second.sub("audit", seen[-1])
        await until_seq(second, "audit", end)
        assert seen + second.seqs("audit") == list(range(start + 1, end + 1))


async def test_rows_that_are_written_while_a_page_catches_up_come_once(site: Site) -> None:
    ada = person(site)
    start = site.do("newest")
    site.do("record", 900, batch=300)
    async with ada.tab() as early, ada.tab() as tab:
        await early.sub("audit")
        await tab.say(op="sub", topics={"audit": start})
        end = await asyncio.to_thread(site.do, "record", 60)
        await until_seq(tab, "audit", end)
        assert tab.seqs("audit") == list(range(start + 1, end + 1))
        await until_seq(early, "audit", end)
        assert early.seqs("audit") == list(range(end - 59, end + 1))


async def test_a_lost_hint_is_made_good_by_the_slow_timer(site: Site) -> None:
    ada = person(site)
    async with ada.tab() as tab:
        await tab.sub("audit")
        await tab.listen(1)
        end = site.do("record", 3, quiet=True)
        await until_seq(tab, "audit", end)
        assert tab.seqs("audit")[-3:] == [end - 2, end - 1, end]


async def test_the_feed_has_no_gap_when_redis_is_wiped_and_restarted(site: Site) -> None:
    ada = person(site)
    start = site.do("newest")
    async with ada.tab() as tab:
        await tab.sub("audit", start)
        site.do("record", 5)
        await asyncio.to_thread(site.restart_valkey)
        site.do("record", 5)
        await asyncio.sleep(2)
        end = site.do("record", 5)
        await until_seq(tab, "audit", end)
        assert tab.seqs("audit") == list(range(start + 1, end + 1))


async def test_after_a_restart_of_redis_hints_flow_again(site: Site) -> None:
    ada = person(site)
    async with ada.tab() as tab:
        await tab.sub("audit")
        await asyncio.to_thread(site.restart_valkey)
        await tab.listen(3)  # the channel layer reconnects by itself
        end = site.do("record", 1)
        await tab.hear(lambda message: message.get("t") == "audit" and message.get("seq") == end, 3)


async def test_a_socket_can_be_opened_while_redis_is_away(site: Site) -> None:
    ada = person(site)
    site.valkey.terminate()
    site.valkey.wait(10)
    try:
        async with ada.tab() as tab:
            start = site.do("newest")
            await tab.sub("audit", start)
            end = site.do("record", 2)
            await until_seq(tab, "audit", end)
    finally:
        site.restart_valkey()


async def test_what_redis_lost_is_on_the_page_soon_after_it_is_back(site: Site) -> None:
    """The hint is lost at both ends: at its sender, and at the page that subscribed while Redis was away."""
    ada = person(site)
    async with ada.tab() as early, ada.tab() as late:
        await early.sub("audit")
        await early.listen(1)
        await until_seq(early, "audit", site.do("record", 1, quiet=True))  # the slow timer just ran: it cannot help
        site.valkey.terminate()
        site.valkey.wait(10)
        try:
            end = site.do("record", 2)
            server = site.do("server", f"s-{uuid.uuid4().hex[:8]}")
            await late.sub(f"log.{server}", 0)
        finally:
            site.restart_valkey()
        site.do("log_lines", server, 1, 2)
        soon = asyncio.create_task(until_seq_within(early, "audit", end, 9))
        await until_seq_within(late, f"log.{server}", 2, 9)
        await soon


async def test_log_lines_are_a_feed_of_their_own(site: Site) -> None:
    ada = person(site)
    server = site.do("server", f"s-{uuid.uuid4().hex[:8]}")
    site.do("log_lines", server, 1, 10)
    async with ada.tab() as tab:
        await tab.sub(f"log.{server}", 4)
        site.do("log_lines", server, 11, 3)
        await until_seq(tab, f"log.{server}", 13)
        assert tab.seqs(f"log.{server}") == list(range(5, 14))


async def test_a_change_of_state_reaches_list_and_server_page(site: Site) -> None:
    ada = person(site)
    server = site.do("server", f"s-{uuid.uuid4().hex[:8]}")
    async with ada.tab() as tab:
        await tab.sub("servers")
        await tab.sub(f"server.{server}")
        site.do("worker_holds", server)
        await moved(tab, server)
        states = await ada.get(f"/server-states/?server={server}&server=none")
        assert "Ready" in states.text
        assert f'id="state-{server}"' in states.text
        if not [frame for frame in tab.frames(f"server.{server}", "session") if frame["rows"][0]["state"] == "ready"]:
            page = await tab.hear(lambda message: message.get("t") == f"server.{server}" and message.get("html"))
            assert page["rows"][0]["state"] == "ready"


async def test_many_servers_that_move_at_once_are_few_frames(site: Site) -> None:
    ada = person(site)
    servers = [site.do("server", f"s-{uuid.uuid4().hex[:8]}") for _ in range(8)]
    async with ada.tab() as tab:
        await tab.sub("servers")
        assert len(tab.frames("servers", "moved")) == 1  # not one for each server
        for server in servers:
            site.do("worker_holds", server)
        await moved(tab, servers[-1])
        assert len(tab.frames("servers", "moved")) < len(servers)


async def test_a_job_that_moved_is_a_mark_to_its_page_and_nothing_else(site: Site) -> None:
    """Each page then fetches its part with its own permissions."""
    clerk, auditor = person(site, ["view_backgroundjob"]), person(site, ["view_auditevent", "verify_chain"])
    async with clerk.tab() as jobs, auditor.tab() as log:
        for tab, topic in ((jobs, "jobs"), (log, "verification")):
            await tab.sub(topic)
            assert tab.frames(topic, "moved")
        site.do("verify_log")
        for tab, topic in ((jobs, "jobs"), (log, "verification")):
            before = tab.frames(topic, "moved")[-1]["rows"]
            frame = await tab.hear(
                lambda message, topic=topic, before=before: message.get("t") == topic and message["rows"] != before, 10
            )
            assert [list(row) for row in frame["rows"]] == [["mark"]]


@pytest.mark.parametrize(
    ("permissions", "topic"),
    [
        (["view_server"], "audit"),
        ([], "servers"),
        (["view_auditevent"], "server.{server}"),
        (["view_auditevent"], "log.{server}"),
        (PERMISSIONS, "server.{nobody}"),
        (PERMISSIONS, "call.{nobody}"),
        (PERMISSIONS, "draft.{nobody}"),
        (PERMISSIONS, "users"),
        (PERMISSIONS, "audit.{server}"),
        (PERMISSIONS, "server.{upper}"),
        (PERMISSIONS, "server.*"),
        ([*PERMISSIONS, "verify_chain"], "jobs"),
        ([*PERMISSIONS, "view_backgroundjob"], "verification"),
        ([*PERMISSIONS, "change_server"], "sign_ins"),
        (["view_credential", "manage_credential", "change_server"], "sign_ins"),
        ([*PERMISSIONS, "view_credential", "manage_credential"], "sign_ins"),
    ],
)
async def test_a_topic_without_its_permission_or_its_row_is_denied(
    site: Site, permissions: list[str], topic: str
) -> None:
    browser = person(site, permissions)
    server = site.do("server", f"s-{uuid.uuid4().hex[:8]}")
    name = topic.format(server=server, nobody=uuid.uuid4(), upper=server.upper())
    async with browser.tab() as tab, person(site).tab() as allowed:
        await tab.say(op="sub", topics={name: None})
        answer = await tab.hear(lambda message: message.get("t") == name)
        assert answer["op"] == "denied"
        await allowed.sub("audit")
        await allowed.sub(f"server.{server}")
        site.do("worker_holds", server)
        await allowed.hear(lambda message: message.get("t") == f"server.{server}" and "kind" in message)
        await until_seq(allowed, "audit", site.do("record", 1))
        await tab.ask(op="ping")  # what was sent before comes before
        assert [message for message in tab.heard if "kind" in message] == []


@pytest.mark.slow
async def test_a_browser_that_does_not_read_is_given_up_and_the_others_are_not_held_up(site: Site) -> None:
    ada, bob = person(site), person(site)
    server = site.do("server", f"s-{uuid.uuid4().hex[:8]}")
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # otherwise the kernel would buffer megabytes for it
    lazy.connect(("127.0.0.1", site.port))
    ticket = await ada.ticket()
    async with bob.tab() as brisk:
        await brisk.sub(f"log.{server}")
        stuck = await ada.dial(sock=lazy, max_queue=1, ping_interval=None, close_timeout=1)
        tab = Tab(stuck)
        await tab.say(op="hello", ticket=ticket, v=1)
        await tab.sub(f"log.{server}")
        for batch in range(8):
            await asyncio.to_thread(site.do, "log_lines", server, 1 + batch * 200, 200, 10_000)
            await until_seq(brisk, f"log.{server}", (batch + 1) * 200)
        await asyncio.sleep(STUCK_SECONDS + 5)
        assert await tab.closed(20) in (4008, 1006)  # the close frame may be stuck behind unread data
        assert tab.seqs(f"log.{server}")[-1:] != [1600]
        assert brisk.seqs(f"log.{server}") == list(range(1, 1601))


def test_only_the_one_spelling_of_a_topic_is_one() -> None:
    numbers = random.Random(7)
    alphabet = "audit.servers-0123456789abcdefABCDEF{}*:/ \0é"
    for _ in range(10_000):
        text = "".join(numbers.choices(alphabet, k=numbers.randrange(0, 60)))
        topic = topics.parse(text)
        assert topic is None or topic.name == text
    uid = uuid.UUID(int=numbers.getrandbits(128))
    assert topics.parse(f"call.{uid}") == topics.Topic(topics.TopicKind.CALL, uid)
    assert topics.parse(f"call.{uid.hex}") is None


def test_pages_know_every_feed_and_so_drop_rows_that_come_twice() -> None:
    script = (settings.BASE_DIR / "static" / "js" / "live.js").read_text()
    (written,) = re.findall(r"^const FEEDS = \[(.+)\];", script, re.MULTILINE)
    assert set(re.findall(r"'(\w+)'", written)) == {kind.value for kind in topics.FEEDS}
