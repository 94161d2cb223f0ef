"""Who may open a live socket, and for how long."""

import asyncio
import uuid

import pytest
import websockets

from servers.limits import stated
from tests.sessions.live.site import Browser, Site, Tab

PERMISSIONS = ["view_server", "call_tool", "view_payload", "view_auditevent"]


@pytest.fixture
def ada(site: Site) -> Browser:
    name = f"ada-{uuid.uuid4().hex[:8]}"
    site.do("user", name, PERMISSIONS)
    browser = site.browser(name)
    browser.name = name
    return browser


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "https://evil.example",
        "http://127.0.0.1.evil.example",
        "http://127.0.0.1:1",
        "http://evil@127.0.0.1",
        "https-of-ours",
        "file://127.0.0.1",
    ],
)
async def test_a_handshake_of_another_origin_is_refused_before_it_is_accepted(
    site: Site, ada: Browser, origin: str | None
) -> None:
    sent = site.origin.replace("http:", "https:") if origin == "https-of-ours" else origin
    with pytest.raises(websockets.InvalidStatus) as refusal:
        await ada.dial(origin=sent)
    assert refusal.value.response.status_code == 403


async def test_a_page_of_ours_is_welcomed(ada: Browser) -> None:
    async with ada.tab() as tab:
        largest = {"bytes": 1024 * 1024, "words": f"This call is too large. {stated('socket_call_bytes')}"}
        assert tab.welcome == {"op": "welcome", "build": "", "largest": largest}
        assert (await tab.ask(op="ping"))["op"] == "pong"


async def test_a_ticket_is_good_for_one_use(ada: Browser) -> None:
    ticket = await ada.ticket()
    async with ada.dial() as first, ada.dial() as second:
        one, two = Tab(first), Tab(second)
        await one.say(op="hello", ticket=ticket, v=1)
        await one.hear(lambda message: message.get("op") == "welcome")
        await two.say(op="hello", ticket=ticket, v=1)
        assert await two.closed() == 4401


async def test_a_ticket_of_another_browser_is_worthless(site: Site, ada: Browser) -> None:
    other = Browser(site, site.do("sign_in", ada.name))
    async with ada.dial() as connection:
        tab = Tab(connection)
        await tab.say(op="hello", ticket=await other.ticket(), v=1)
        assert await tab.closed() == 4401


async def test_a_ticket_wants_a_post_with_the_csrf_token(site: Site, ada: Browser) -> None:
    ada.cookie = f"mcpadmin_session={ada.session_key}"
    assert (await ada.post("/live/ticket/")).status_code == 403


async def test_nothing_is_answered_before_hello(ada: Browser) -> None:
    async with ada.dial() as connection:
        tab = Tab(connection)
        await tab.say(op="sub", topics={"servers": None})
        assert await tab.closed() == 4401
        assert tab.heard == []


async def test_a_socket_without_hello_is_closed_in_time(ada: Browser) -> None:
    async with ada.dial() as connection:
        assert await Tab(connection).closed() == 4408


async def test_a_visitor_without_session_is_closed(site: Site) -> None:
    stranger = Browser(site, "no-such-session")
    async with stranger.dial() as connection:
        assert await Tab(connection).closed() == 4401


async def test_signing_out_closes_the_sockets_of_that_browser_only(site: Site, ada: Browser) -> None:
    other = Browser(site, site.do("sign_in", ada.name))
    async with ada.tab() as tab, other.tab() as stays:
        site.do("sign_out", ada.session_key, ada.name)
        assert await tab.closed(5) == 4401
        assert (await stays.ask(op="ping"))["op"] == "pong"


async def test_signing_out_by_the_page_closes_the_socket_at_once(ada: Browser) -> None:
    async with ada.tab() as tab:
        response = await ada.post("/accounts/logout/")
        assert response.status_code == 302
        assert await tab.closed(5) == 4401


async def test_a_deactivated_user_loses_every_socket(site: Site, ada: Browser) -> None:
    async with ada.tab() as tab:
        await tab.sub("audit")
        site.do("deactivate", ada.name)
        assert await tab.closed(5) == 4401


async def test_a_permission_that_is_taken_away_ends_its_topics_and_nothing_more_is_sent(
    site: Site, ada: Browser
) -> None:
    name = f"other-{uuid.uuid4().hex[:8]}"
    site.do("user", name, PERMISSIONS)
    async with ada.tab() as tab, site.browser(name).tab() as allowed:
        await tab.sub("audit")
        await tab.sub("servers")
        await allowed.sub("audit")
        site.do("set_permissions", ada.name, ["view_server"])
        await tab.hear(lambda message: message.get("op") == "denied" and message["t"] == "audit")
        before = len(tab.seqs("audit"))
        end = site.do("record", 3)
        await allowed.hear(lambda message: message.get("t") == "audit" and message.get("seq") == end)
        await tab.ask(op="ping")  # what was sent before comes before
        assert len(tab.seqs("audit")) == before


async def test_a_page_is_told_when_to_ask_again_for_what_it_was_denied(site: Site, ada: Browser) -> None:
    async with ada.tab() as tab:
        await tab.sub("audit")
        await tab.sub("servers")
        site.do("set_permissions", ada.name, ["view_server"])
        denied = await tab.hear(lambda message: message.get("op") == "denied" and message["t"] == "audit")
        assert denied["lacks_permission"] is True
        await tab.hear(lambda message: message.get("op") == "permissions")
        site.do("set_permissions", ada.name, PERMISSIONS)
        await tab.hear(lambda message: message.get("op") == "permissions")
        await tab.sub("audit")
        site.do("record", 1)
        await tab.hear(
            lambda message: message.get("t") == "audit" and message.get("kind") != "synced" and "rows" in message
        )


async def test_without_any_permission_left_the_socket_is_closed(site: Site, ada: Browser) -> None:
    async with ada.tab() as tab:
        await tab.sub("servers")
        site.do("set_permissions", ada.name, [])
        assert await tab.closed(5) == 4403


async def test_permissions_of_a_group_that_change_or_go_with_it_reach_open_sockets(site: Site, ada: Browser) -> None:
    group = f"group-{ada.name}"
    site.do("join_group", ada.name, group, PERMISSIONS)
    async with ada.tab() as tab:
        await tab.sub("audit")
        await tab.sub("servers")
        site.do("change_group", group, ["view_server"])
        await tab.hear(lambda message: message.get("op") == "denied" and message["t"] == "audit")
        site.do("delete_group", group)
        assert await tab.closed(5) == 4403


async def test_a_sign_in_that_an_administrator_ends_closes_the_sockets_of_that_browser_only(
    site: Site, ada: Browser
) -> None:
    other = Browser(site, site.do("sign_in", ada.name))
    async with ada.tab() as tab, other.tab() as stays:
        assert site.do("end_sign_in", ada.name, ada.session_key) == 1
        assert await tab.closed(5) == 4401
        assert (await stays.ask(op="ping"))["op"] == "pong"
        site.do("disable", ada.name)
        assert await stays.closed(5) == 4401


async def test_the_eleventh_socket_of_a_user_is_refused(ada: Browser) -> None:
    tickets = [await ada.ticket() for _ in range(11)]
    async with asyncio.timeout(20):
        connections = [await ada.dial() for _ in range(11)]
        tabs = [Tab(connection) for connection in connections]
        for tab, ticket in zip(tabs, tickets, strict=True):
            await tab.say(op="hello", ticket=ticket, v=1)
            if tab is not tabs[-1]:
                await tab.hear(lambda message: message.get("op") == "welcome")
        assert await tabs[-1].closed() == 4030
        assert tabs[-1].heard[-1] == {"op": "refused", "words": f"Too many open tabs. {stated('sockets_per_user')}"}
        assert (await tabs[0].ask(op="ping"))["op"] == "pong"
        for connection in connections:
            await connection.close()


async def test_a_flood_of_messages_closes_the_socket(ada: Browser) -> None:
    async with ada.tab() as tab:
        for _ in range(130):
            await tab.say(op="ping")
        assert await tab.closed() == 4029
        assert stated("socket_messages_per_second") in tab.heard[-1]["words"]


async def test_a_flood_of_topics_closes_the_socket_though_they_come_in_a_few_messages(ada: Browser) -> None:
    async with ada.tab() as tab:
        topics = {f"call.{uuid.uuid4()}": 0 for _ in range(100)}
        for since in range(3):
            await tab.say(op="sub", topics=dict.fromkeys(topics, since))
        assert await tab.closed() == 4029
        assert stated("socket_messages_per_second") in tab.heard[-1]["words"]


async def test_a_message_that_is_too_large_closes_the_socket_and_the_page_learns_the_limit(ada: Browser) -> None:
    async with ada.tab() as tab:
        await tab.say(op="ping", padding="a" * 70_000)
        assert await tab.closed() == 4009
        assert stated("socket_message_bytes", "socket_call_bytes") in tab.heard[-1]["words"]


async def test_a_topic_beyond_the_limit_is_denied_with_the_limit(ada: Browser) -> None:
    async with ada.tab() as tab:
        topics = [f"call.{uuid.uuid4()}" for _ in range(101)]
        await tab.say(op="sub", topics=dict.fromkeys(topics, 0))
        denied = await tab.hear(lambda message: message.get("op") == "denied" and "why" in message)
        assert (denied["t"], denied["why"]) == (topics[-1], stated("socket_topics"))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"op":"dance"}', '{"op":"ping","op":"ping"}', "\0"])
async def test_what_is_not_the_protocol_closes_the_socket(ada: Browser, text: str) -> None:
    async with ada.tab() as tab:
        await tab.connection.send(text)
        assert await tab.closed() == 4400


async def test_a_large_message_that_is_no_call_closes_the_socket(ada: Browser) -> None:
    async with ada.tab() as tab:
        await tab.say(op="ping", ref="x" * 70_000)
        assert await tab.closed() == 4009


@pytest.mark.parametrize(
    "message",
    [{"op": "ping", "ref": 10**30}, {"op": "sub", "topics": {"\ud800": None}}],
    ids=["a number", "half a character"],
)
async def test_a_socket_that_fails_at_a_message_takes_no_place_of_its_user(
    ada: Browser, message: dict[str, object]
) -> None:
    """What no answer can carry."""
    for _ in range(11):
        async with ada.tab() as tab:
            await tab.say(**message)
            assert await tab.closed() == 4500
    async with ada.tab() as tab:
        assert (await tab.ask(op="ping"))["op"] == "pong"
