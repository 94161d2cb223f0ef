"""Methods other than tools/call use the same sockets, checks and acceptance."""

import uuid

import pytest

from tests.sessions.live.site import Browser, Site

PERMISSIONS = ["view_server", "call_tool", "view_payload"]


def person(site: Site) -> Browser:
    name = f"u-{uuid.uuid4().hex[:8]}"
    site.do("user", name, PERMISSIONS)
    return site.browser(name)


@pytest.fixture
def server(site: Site) -> str:
    """A server whose session no worker holds, with no worker alive."""
    site.do("no_workers")
    return str(site.do("server", f"s-{uuid.uuid4().hex[:8]}"))


async def test_a_reading_is_accepted_and_all_who_look_at_the_server_learn_of_it(site: Site, server: str) -> None:
    async with person(site).tab() as watcher, person(site).tab() as reader:
        await watcher.sub(f"server.{server}")
        asked = {"op": "call", "method": "resources/read", "server": server, "target": "lib://a", "args": {}}
        answer = await reader.ask(**asked)
        assert answer["op"] == "accepted", answer
        frame = await watcher.hear(lambda message: message.get("kind") == "call")
    row = next(row for row in frame["rows"] if row["uid"] == answer["call"])
    assert (row["method"], row["tool"]) == ("resources/read", "lib://a")


async def test_a_completion_needs_no_card(site: Site, server: str) -> None:
    about = {"argument": {"name": "text", "value": ""}}
    asked = {"op": "call", "method": "completion/complete", "server": server, "html": False, "args": about}
    async with person(site).tab() as tab:
        answer = await tab.ask(**asked, target="ref/prompt:echo")
    assert (answer["op"], "no longer offers" in answer["message"]) == ("rejected", True)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"method": "tools/list"}, "does not send this method"),
        ({"method": 5}, "does not send this method"),
        ({"target": "a\nb"}, "control characters"),
        ({"target": 5}, "names no target"),
        ({"target": "", "tool": ""}, "names no tool"),
        ({"args": {"uri": "lib://other"}}, "takes only its URI"),
    ],
    ids=range(6),
)
async def test_what_is_no_operation_says_why(site: Site, server: str, message: dict[str, object], said: str) -> None:
    asked = {"op": "call", "method": "resources/read", "server": server, "target": "lib://a", "args": {}}
    async with person(site).tab() as tab:
        answer = await tab.ask(**(asked | message))
    assert answer["op"] == "rejected"
    assert said in answer["message"]


async def test_tool_is_still_a_name_for_the_target_of_a_tools_call(site: Site, server: str) -> None:
    async with person(site).tab() as tab:
        old = await tab.ask(op="call", server=server, tool="echo", args={"text": "x"})
        new = await tab.ask(op="call", method="tools/call", server=server, target="echo", args={"text": "x"})
    assert old["op"] == new["op"] == "accepted"
