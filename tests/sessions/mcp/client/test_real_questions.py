"""Real servers of other authors request sampling, elicitation and roots, in both eras and over both transports."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sessions.mcp.client import InputRequest, Refused, Root
from sessions.mcp.core.errors import Fault, LocalError, McpError, RpcError
from sessions.mcp.core.opening import EraSetting
from sessions.mcp.transports.registry import Spec, StdioSpec
from tests.peers.peers import peer_command, run_peer
from tests.sessions.mcp.client.answers import ELICIT, SAMPLE, complete
from tests.sessions.mcp.transports.making import connected, http

pytestmark = pytest.mark.integration
PLACES = [
    ("sdk2", "stdio", "modern"),
    pytest.param("sdk2", "stdio", "legacy", marks=pytest.mark.long),
    pytest.param("sdk2", "http", "modern", marks=pytest.mark.long),
    ("sdk2", "http", "legacy"),
    pytest.param("fastmcp", "stdio", "auto", marks=pytest.mark.long),
    ("sdk1", "stdio", "legacy"),
    pytest.param("sdk1", "http", "legacy", marks=pytest.mark.long),
]


async def fill_in(asked: InputRequest) -> dict[str, Any]:
    kinds = {"string": "Paris", "integer": 3, "number": 1.5, "boolean": True, "array": []}
    properties = asked.params["requestedSchema"]["properties"]
    return {"action": "accept", "content": {name: kinds[one["type"]] for name, one in properties.items()}}


async def refuse(asked: InputRequest) -> dict[str, Any]:
    raise Refused(message="Not today")


@contextmanager
def spec_of(name: str, transport: str) -> Iterator[Spec]:
    if transport == "stdio":
        command, args = peer_command(name, "stdio")
        yield StdioSpec(command, tuple(args))
    else:
        with run_peer(name, "http") as url:
            yield http(url)


def text(result: Any) -> str:
    return "\n".join(block.get("text", "") for block in result.content)


@pytest.mark.parametrize(("name", "transport", "era"), PLACES)
async def test_a_tool_gets_the_answers_of_a_person_and_a_model(name: str, transport: str, era: EraSetting) -> None:
    answers = {ELICIT: fill_in, SAMPLE: complete}
    with spec_of(name, transport) as spec:
        async with connected(spec, era=era, capabilities=None, answers=answers) as made:
            tools = {tool["name"] for tool in (await made.client.list_tools()).items}
            assert {"ask_person", "ask_model"} & tools
            if "ask_person" in tools:
                assert text(await made.client.call_tool("ask_person", {})) == "accept: Paris, 3"
            if "ask_model" in tools:
                assert text(await made.client.call_tool("ask_model", {})) == "tests says: hello"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_refused_sample_ends_a_modern_call_and_is_told_to_a_legacy_tool(era: EraSetting) -> None:
    answers = {ELICIT: fill_in, SAMPLE: refuse}
    with spec_of("sdk2", "stdio") as spec:
        async with connected(spec, era=era, capabilities=None, answers=answers) as made:
            with pytest.raises(McpError) as caught:
                await made.client.call_tool("ask_model", {})
    if era == "legacy":
        # The SDK passes the error that its tool received on to the caller of the tool.
        assert isinstance(caught.value, RpcError)
        assert (caught.value.code, caught.value.message) == (-1, "Not today")
    else:
        assert isinstance(caught.value, LocalError)
        assert caught.value.fault is Fault.INPUT_REFUSED


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_server_everything_asks_for_all_that_it_knows(transport: str) -> None:
    asked: list[InputRequest] = []

    async def person(question: InputRequest) -> dict[str, Any]:
        asked.append(question)
        return {"action": "accept"} if question.params.get("mode") == "url" else {"action": "decline"}

    more: dict[str, Any] = {"answers": {ELICIT: person, SAMPLE: complete}, "roots": (Root("file:///srv/x", "x"),)}
    with spec_of("everything", transport) as spec:
        async with connected(spec, capabilities=None, **more) as made:
            call = made.client.call_tool
            assert "declined" in text(await call("trigger-elicitation-request", {})).lower()
            assert "hello" in text(await call("trigger-sampling-request", {"prompt": "hi", "maxTokens": 5}))
            assert "file:///srv/x" in text(await call("get-roots-list", {}))
            visit = {"url": "https://a.example/login", "errorPath": True}
            result = await call("trigger-url-elicitation", visit)
            assert "https://a.example/login" in text(result)
            assert result.attempts == 2
            assert [(one.method, one.origin) for one in asked] == [
                (ELICIT, "request"),
                (ELICIT, "error"),
                (ELICIT, "request"),
            ]
