"""Calls through real sockets: the intent is stored before acceptance, errors name a JSON pointer, and a second page
sees the call."""

import asyncio
import json
import time
import uuid

import pytest

from tests.sessions.host.harness import eventually
from tests.sessions.live.site import Browser, Site, Tab
from tests.tools.bells import bells

PERMISSIONS = ["view_server", "call_tool", "view_payload", "view_auditevent"]


def person(site: Site, permissions: list[str] = PERMISSIONS) -> Browser:
    name = f"u-{uuid.uuid4().hex[:8]}"
    site.do("user", name, permissions)
    return site.browser(name)


@pytest.fixture
def server(site: Site) -> str:
    """A server whose session no worker holds, with no worker alive."""
    site.do("no_workers")
    return str(site.do("server", f"s-{uuid.uuid4().hex[:8]}"))


def call_of(site: Site, uid: str) -> dict[str, str]:
    return next(row for row in site.do("calls") if row["uid"] == uid)


async def test_an_accepted_call_has_its_row_its_arguments_and_its_event(site: Site, server: str) -> None:
    async with person(site).tab() as tab:
        answer = await tab.ask(op="call", server=server, tool="echo", args={"text": "hé 12345678901234567890"})
    assert answer["op"] == "accepted"
    assert answer["topic"] == f"call.{answer['call']}"
    assert f"#{answer['number']}" in answer["html"]
    row = call_of(site, answer["call"])
    assert row["state"] == "requested"
    assert json.loads(row["arguments__text"]) == {"text": "hé 12345678901234567890"}
    assert row["session__desired"] == "open"
    event = next(event for event in site.do("events", "call:tool:request") if event["call"] == answer["call"])
    assert row["arguments__digest"] in event["body"]
    assert "hé" not in event["body"]


async def test_the_owner_is_rung_with_ids_and_nothing_else(site: Site, server: str) -> None:
    worker = site.do("worker_holds", server)
    with bells(site.valkey_socket, worker) as heard:
        async with person(site).tab() as tab:
            answer = await tab.ask(op="call", server=server, tool="echo", args={"text": "top secret"})
            body = await asyncio.to_thread(heard.next)
    assert body.pop("expires") > time.time()
    assert isinstance(body.pop("session"), int)
    assert body == {"v": 1, "verb": "call", "id": answer["call"]}


async def test_arguments_that_break_the_schema_are_rejected_by_pointer_and_leave_no_row(
    site: Site, server: str
) -> None:
    before = len(site.do("calls"))
    async with person(site).tab() as tab:
        wrong = await tab.ask(op="call", server=server, tool="echo", args={"text": 7, "more": 1})
        missing = await tab.ask(op="call", server=server, tool="echo", json="{}")
        garbled = await tab.ask(op="call", server=server, tool="echo", json='{"text": "a", "text": "b"}')
    assert wrong["op"] == missing["op"] == garbled["op"] == "rejected"
    assert "/text" in wrong["errors"]
    assert missing["errors"]
    assert "appears twice" in garbled["errors"][""][0]
    assert len(site.do("calls")) == before


async def test_the_fields_of_the_pages_form_are_taken(site: Site, server: str) -> None:
    fields = {"_mode": ["json"], "_json": ['{"text": "from the form"}']}
    async with person(site).tab() as tab:
        answer = await tab.ask(op="call", server=server, tool="echo", form=fields)
    assert answer["op"] == "accepted", answer
    assert json.loads(call_of(site, answer["call"])["arguments__text"]) == {"text": "from the form"}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"tool": "nothing"}, "no longer offers a tool with this name"),
        ({"server": "f" * 8}, "names no server"),
        ({"server": str(uuid.UUID(int=5))}, "does not exist"),
        ({"args": [1]}, "must be a JSON object"),
        ({"tool": 5}, "names no tool"),
    ],
)
async def test_a_call_that_cannot_be_placed_says_why(
    site: Site, server: str, message: dict[str, object], said: str
) -> None:
    async with person(site).tab() as tab:
        asked = {"op": "call", "server": server, "tool": "echo", "args": {"text": "x"}} | message
        answer = await tab.ask(**asked)
    assert answer["op"] == "rejected"
    assert said in answer["message"]


async def test_a_destructive_tool_asks_for_its_name(site: Site, server: str) -> None:
    async with person(site).tab() as tab:
        asked = await tab.ask(op="call", server=server, tool="wipe", args={})
        wrong = await tab.ask(op="call", server=server, tool="wipe", args={}, confirm=True)
        right = await tab.ask(op="call", server=server, tool="wipe", args={}, confirm="wipe")
    assert (asked["op"], asked["confirm"]) == ("rejected", "name")
    assert wrong["op"] == "rejected"
    assert right["op"] == "accepted"


async def test_arguments_of_a_destructive_tool_that_cannot_be_checked_are_a_question_of_their_own(
    site: Site, server: str
) -> None:
    call = {"op": "call", "server": server, "tool": "wipe_unchecked", "form": {"_mode": ["json"], "_json": ["{}"]}}
    async with person(site).tab() as tab:
        named = await tab.ask(**call, confirm="wipe_unchecked")
        both = await tab.ask(**call, confirm="wipe_unchecked", unchecked=True)
    assert (named["op"], named["confirm"]) == ("rejected", "unchecked")
    assert both["op"] == "accepted"


async def test_without_permission_a_call_is_refused_and_recorded(site: Site, server: str) -> None:
    before = len(site.do("events", "account:permission:deny"))
    async with person(site, ["view_server"]).tab() as tab:
        answer = await tab.ask(op="call", server=server, tool="echo", args={"text": "x"})
    assert answer["op"] == "rejected"
    assert "permission to call tools" in answer["message"]
    assert len(site.do("events", "account:permission:deny")) == before + 1


async def test_a_second_browser_sees_the_call_and_its_result_live(site: Site, server: str) -> None:
    async with person(site).tab() as mine, person(site).tab() as other:
        await other.sub(f"server.{server}")
        answer = await mine.ask(op="call", server=server, tool="echo", args={"text": "x"})
        told = await other.hear(lambda message: message.get("kind") == "call")
        assert told["rows"][0]["uid"] == answer["call"]
        topic = answer["topic"]
        for tab in (mine, other):
            await tab.sub(topic)
        site.do("send", answer["call"])
        site.do("progress", answer["call"], 3, 4, "three <b>of</b> four")
        step = await other.hear(lambda message: message.get("kind") == "progress")
        assert step["rows"][0]["progress"] == 3
        assert 'value="75"' in step["html"]
        assert "three &lt;b&gt;of" in step["html"]
        site.do("finish", answer["call"], {"content": [{"type": "text", "text": "<script>alert(1)</script>"}]})
        for tab in (mine, other):
            last = await tab.hear(lambda message: message.get("t") == topic and message["rows"][0].get("final"))
            assert last["rows"][0]["state"] == "succeeded"
            assert "<script>" not in last["html"]
            assert "&lt;script&gt;" in last["html"]


async def test_a_socket_learns_of_its_own_call_without_asking(site: Site, server: str) -> None:
    async with person(site).tab() as tab:
        answer = await tab.ask(op="call", server=server, tool="echo", args={"text": "x"}, follow=True)
        assert answer["followed"] is True
        site.do("finish", answer["call"], {"content": [{"type": "text", "text": "the-answer"}]})
        last = await tab.hear(lambda message: message.get("t") == answer["topic"] and message["rows"][0].get("final"))
        assert "the-answer" in last["html"]
        assert [frame["rows"][0]["state"] for frame in tab.frames(answer["topic"], "call")] == ["succeeded"]


async def test_who_may_not_read_payloads_sees_the_call_without_its_result(site: Site, server: str) -> None:
    async with person(site).tab() as mine, person(site, ["view_server"]).tab() as other:
        answer = await mine.ask(op="call", server=server, tool="echo", args={"text": "x"})
        for tab in (mine, other):
            await tab.sub(answer["topic"])
        site.do("finish", answer["call"], {"content": [{"type": "text", "text": "the-answer"}]})
        is_final = lambda message: message.get("kind") == "call" and message["rows"][0].get("final")  # noqa: E731 - read twice
        assert "the-answer" in (await mine.hear(is_final))["html"]
        assert "the-answer" not in (await other.hear(is_final))["html"]


async def test_a_result_that_arrives_on_the_page_of_another_person_is_recorded_as_read(site: Site, server: str) -> None:
    async with person(site).tab() as mine, person(site).tab() as other:
        answer = await mine.ask(op="call", server=server, tool="echo", args={"text": "x"})
        for tab in (mine, other):
            await tab.sub(answer["topic"])
        site.do("finish", answer["call"], {"content": [{"type": "text", "text": "the-answer"}]})
        is_final = lambda message: message.get("kind") == "call" and message["rows"][0].get("final")  # noqa: E731 - read twice
        for tab in (mine, other):
            assert "the-answer" in (await tab.hear(is_final))["html"]
        read = lambda: [row for row in site.do("events", "instance:payload:read") if row["call"] == answer["call"]]  # noqa: E731 - read twice
        eventually(read, words="one of the two did not make the call")
        assert len(read()) == 1


async def test_a_requested_call_is_cancelled_at_once(site: Site, server: str) -> None:
    async with person(site).tab() as tab:
        answer = await tab.ask(op="call", server=server, tool="echo", args={"text": "x"})
        await tab.sub(answer["topic"])
        done = await tab.ask(op="cancel", call=answer["call"])
        assert done["op"] == "cancelling"
        again = await tab.ask(op="cancel", call=answer["call"])
        assert again["op"] == "cancelled"
    assert call_of(site, answer["call"])["state"] == "cancelled"
    assert any(event["call"] == answer["call"] for event in site.do("events", "call:tool:cancel"))


async def test_without_any_worker_an_overdue_call_expires(site: Site, server: str) -> None:
    async with person(site).tab() as tab:
        answer = await tab.ask(op="call", server=server, tool="echo", args={"text": "x"})
        await tab.sub(answer["topic"])
        site.do("overdue", answer["call"])
        last = await tab.hear(
            lambda message: message.get("kind") == "call" and message["rows"][0].get("state") == "expired", 25
        )
        assert "did not reach the server" in last["html"]


async def test_a_deleted_server_ends_its_waiting_calls(site: Site, server: str) -> None:
    async with person(site).tab() as tab:
        answer = await tab.ask(op="call", server=server, tool="echo", args={"text": "x"})
        await tab.sub(answer["topic"])
        site.do("delete_server", server)
        await tab.hear(lambda message: message.get("kind") == "call" and message["rows"][0]["state"] == "cancelled", 20)


async def test_the_form_without_script_ends_in_the_same_place(site: Site, server: str) -> None:
    browser = person(site)
    slug = site.do("slug_of", server)
    fields = {"_mode": "json", "_json": '{"text": "no script"}'}
    response = await browser.post(f"/servers/{slug}/call/?tool=echo", fields)
    assert response.status_code == 303, response.text[:2000]
    page = await browser.get(response.headers["location"])
    assert page.status_code == 200
    assert "no script" in page.text


@pytest.mark.parametrize("people", [2, pytest.param(10, marks=pytest.mark.long)])
async def test_each_of_many_calls_of_many_sockets_is_one_intent(site: Site, server: str, people: int) -> None:
    site.do("worker_holds", server)
    browsers, calls = [person(site) for _ in range(people)], people * 5 * 10
    before = len(site.do("calls"))

    async def ten_calls(tab: Tab) -> list[str]:
        answers = [
            await tab.ask(op="call", server=server, tool="echo", args={"text": "x"}, html=False) for _ in range(10)
        ]
        assert {answer["op"] for answer in answers} == {"accepted"}
        return [answer["call"] for answer in answers]

    async def one_socket(browser: Browser) -> list[str]:
        async with browser.tab() as tab:
            return await ten_calls(tab)

    started = time.perf_counter()
    batches = await asyncio.gather(*[one_socket(browser) for browser in browsers for _ in range(5)])
    took = time.perf_counter() - started
    uids = [uid for batch in batches for uid in batch]
    print(f"\n{calls} calls by {people * 5} sockets accepted in {took:.2f} s")
    assert len(set(uids)) == calls
    assert len(site.do("calls")) - before == calls
    requested = {event["call"] for event in site.do("events", "call:tool:request")}
    assert set(uids) <= requested
    assert site.do("chain_is_whole")
