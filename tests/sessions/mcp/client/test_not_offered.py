"""The client never requests what a server did not declare, and its refusal says why."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessions.mcp.client import Client
from sessions.mcp.core.errors import Fault, InvalidRequest
from sessions.mcp.core.events import ListKind
from tests.sessions.mcp.transports.making import connected, http
from tests.sessions.mcp.transports.scripted_http import Asked, Line, scripted_http

OPERATIONS: dict[str, tuple[Callable[[Client], Awaitable[Any]], str]] = {
    "tools/call": (lambda client: client.call_tool("t", {}), "does not offer tools"),
    "prompts/get": (lambda client: client.get_prompt("p", {}), "does not offer prompts"),
    "resources/read": (lambda client: client.read_resource("file:///x"), "does not offer resources"),
    "completion/complete": (
        lambda client: client.complete({"type": "ref/prompt", "name": "p"}, {"name": "a", "value": ""}),
        "does not offer argument completion",
    ),
    "logging/setLevel": (lambda client: client.set_log_level("info"), "does not offer log messages"),
    "tasks/list": (lambda client: client.list_tasks(), "does not offer listing its tasks"),
    "tasks/cancel": (lambda client: client.cancel_task("t"), "cancelling a task|did not declare the extension"),
    "tasks/get": (lambda client: client.resume_task("t"), "running calls as tasks|did not declare the extension"),
}


def bare(era: str, **more: Any) -> Callable[[Asked, Line], Awaitable[None]]:
    """A server that declares only an experimental capability, but would answer every request."""
    declared = {"experimental": {"x": {}}, **more}

    async def script(asked: Asked, line: Line) -> None:
        if asked.verb != "POST":
            await line.reply(405, kind="")
        elif asked.id is None:
            await line.reply(202, kind="")
        elif asked.method == "server/discover" and era == "legacy":
            await line.error(asked, -32601)
        elif asked.method == "server/discover":
            await line.result(asked, {"supportedVersions": ["2026-07-28"], "capabilities": declared})
        elif asked.method == "initialize":
            info = {"name": "bare", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": declared, "serverInfo": info}
            await line.result(asked, result)
        else:
            await line.result(asked, {})

    return script


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("method", OPERATIONS)
async def test_it_is_refused_here_in_words_and_not_a_byte_is_sent(method: str, era: str) -> None:
    operation, words = OPERATIONS[method]
    async with scripted_http(bare(era)) as peer, connected(http(peer.url)) as made:
        before = len(peer.asked)
        with pytest.raises(InvalidRequest, match=words) as refused:
            await operation(made.client)
        assert refused.value.fault is Fault.NOT_OFFERED
        assert not refused.value.may_have_run
        assert "declare" in refused.value.detail
        assert [one.method for one in peer.asked[before:] if one.verb == "POST"] == []


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_capability_that_is_declared_as_no_object_is_named_in_the_refusal(era: str) -> None:
    async with scripted_http(bare(era, tools=True)) as peer, connected(http(peer.url)) as made:
        with pytest.raises(InvalidRequest) as refused:
            await made.client.call_tool("t", {})
    assert refused.value.detail == (
        "The server does not offer tools (it declared tools as true, not as an object, so it counts as undeclared)."
    )


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_lists_that_were_not_declared_are_empty_and_not_asked_for(era: str) -> None:
    async with scripted_http(bare(era)) as peer, connected(http(peer.url)) as made:
        client = made.client
        lists = (client.list_tools, client.list_resources, client.list_resource_templates, client.list_prompts)
        assert [(await listing()).items for listing in lists] == [[], [], [], []]
        assert [one.method for one in peer.asked if one.method.endswith("/list")] == []


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_news_that_were_not_declared_are_not_asked_for_and_each_has_its_reason(era: str) -> None:
    async with scripted_http(bare(era)) as peer, connected(http(peer.url)) as made:
        honoured = await made.client.follow(["file:///x"], [ListKind.TOOLS], ["task-1"])
        assert not honoured.resources
        assert not honoured.tasks
        assert "file:///x" in honoured.refused
        assert not set(peer.methods()) & {"resources/subscribe", "subscriptions/listen"}
