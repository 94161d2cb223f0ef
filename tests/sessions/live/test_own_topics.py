"""Only the owner of a personal session receives its live topics."""

import uuid
from types import SimpleNamespace
from typing import Any

from sessions.live.hub import Hub
from sessions.live.topics import Topic, TopicKind
from tests.sessions.live.site import Browser, Site, Tab

PERMISSIONS = ["view_server", "call_tool"]


def person(site: Site) -> tuple[str, Browser]:
    name = f"u-{uuid.uuid4().hex[:8]}"
    site.do("user", name, PERMISSIONS)
    return name, site.browser(name)


def states(tab: Tab, topic: str, server: str) -> list[str]:
    rows = [row for frame in tab.frames(topic, "session") for row in frame["rows"]]
    return [row["state"] for row in rows if row["server"] == server]


async def until(tab: Tab, topic: str, server: str, state: str) -> None:
    def says(message: dict[str, Any]) -> bool:
        rows = message.get("rows") or []
        return message.get("t") == topic and any(
            row.get("server") == server and row.get("state") == state for row in rows
        )

    if state not in states(tab, topic, server):
        await tab.hear(says)


async def test_state_and_log_of_an_own_session_reach_its_owner_alone(site: Site) -> None:
    (ada, hers), (_, theirs) = person(site), person(site)
    server = site.do("server", f"s-{uuid.uuid4().hex[:8]}")
    own = site.do("own_identity", server, ada)
    async with hers.tab() as mine, theirs.tab() as other:
        for tab in (mine, other):
            await tab.sub(f"log.{server}", 0)
        await mine.sub(f"server.{server}.{own}")
        await mine.sub(f"log.{server}.{own}", 0)
        await other.say(op="sub", topics={f"server.{server}.{own}": None, f"log.{server}.{own}": None})

        site.do("own_session_is", own, "ready")
        site.do("log_lines", server, 1, 2, 0, own)
        await until(mine, f"server.{server}.{own}", server, "ready")
        if mine.seqs(f"log.{server}.{own}")[-1:] != [2]:
            await mine.hear(lambda message: message.get("t") == f"log.{server}.{own}" and message.get("seq") == 2)

        site.do("log_lines", server, 1, 1)
        if other.seqs(f"log.{server}") != [1]:
            await other.hear(lambda message: message.get("t") == f"log.{server}" and message.get("seq") == 1)
        denied = {message["t"] for message in other.heard if message.get("op") == "denied"}
        assert denied == {f"server.{server}.{own}", f"log.{server}.{own}"}
        shown = [(await one.get(f"/server-states/?server={server}")).text for one in (hers, theirs)]
        assert ["Ready" in text for text in shown] == [True, False]
        assert not [message for message in other.heard if own in str(message.get("t")) and "rows" in message]


def test_a_hint_of_a_server_wakes_the_streams_of_own_sessions_there() -> None:
    hub: Any = object.__new__(Hub)
    hub.streams, hub._own, hub._reads = {}, {}, SimpleNamespace(stream=lambda topic: topic)
    own, other = (Topic(TopicKind.SERVER, uuid.uuid4(), uuid.uuid4()) for _ in range(2))
    for topic in (own, other):
        hub._stream(topic)
    assert hub._concerned(own.hint) == [own]
    hub._forget_own(own)
    assert (hub._concerned(own.hint), hub._own) == ([], {other.hint: {other.name}})
