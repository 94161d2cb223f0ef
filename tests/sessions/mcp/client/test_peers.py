"""The client against four kinds of real servers, over both transports."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from sessions.mcp.core.errors import Fault, RpcError, TransportError
from sessions.mcp.core.events import ListChanged, Progress
from sessions.mcp.core.results import Step
from sessions.mcp.core.state import State
from sessions.mcp.transports.registry import Spec, StdioSpec
from tests.peers.peers import peer_command, run_peer
from tests.sessions.mcp.transports.making import FlowSecrets, connected, http, unconnected
from tests.sessions.mcp.transports.processes import children, descendants, gone

pytestmark = pytest.mark.integration

PEERS = [
    ("everything", "stdio", "legacy", "2025-11-25"),
    ("sdk1", "stdio", "legacy", "2025-11-25"),
    ("sdk2", "stdio", "modern", "2026-07-28"),
    pytest.param(("fastmcp", "stdio", "modern", "2026-07-28"), marks=pytest.mark.long),
    ("everything", "http", "legacy", "2025-11-25"),
    ("sdk1", "http", "legacy", "2025-11-25"),
    ("sdk2", "http", "modern", "2026-07-28"),
    pytest.param(("fastmcp", "http", "modern", "2026-07-28"), marks=pytest.mark.long),
]


@contextmanager
def spec_of(name: str, transport: str) -> Iterator[Spec]:
    if transport == "stdio":
        command, args = peer_command(name, "stdio")
        yield StdioSpec(command, tuple(args))
    else:
        with run_peer(name, "http") as url:
            yield http(url)


@pytest.fixture(params=PEERS, ids=lambda peer: f"{peer[0]}-{peer[1]}")
async def peer(request: pytest.FixtureRequest) -> AsyncIterator[tuple[FlowSecrets, str, str, str]]:
    name, transport, era, revision = request.param
    with spec_of(name, transport) as spec:
        async with connected(spec) as made:
            yield made, name, era, revision


async def test_a_session_is_settled_and_lists_calls_and_reads_one_at_a_time_and_many_at_once(
    peer: tuple[FlowSecrets, str, str, str], subtests: pytest.Subtests
) -> None:
    made, name, era, revision = peer
    client, opened, key = made.client, made.connected, "message" if name == "everything" else "text"
    with subtests.test("era and revision are settled, and every list and a call work"):
        assert (opened.era, opened.revision) == (era, revision)
        assert opened.server_info["name"]
        assert {"tools", "resources", "prompts"} <= set(opened.server_capabilities)
        tools = await client.list_tools()
        assert "echo" in {tool["name"] for tool in tools.items}
        assert all("inputSchema" in tool for tool in tools.items)
        resources, templates, prompts = (
            await client.list_resources(),
            await client.list_resource_templates(),
            await client.list_prompts(),
        )
        assert resources.items
        assert templates.items
        assert prompts.items
        assert not any(listing.truncated for listing in (tools, resources, templates, prompts))
        result = await client.call_tool("echo", {key: "grüße"})
        assert not result.is_error
        assert "grüße" in result.content[0]["text"]
        read = await client.read_resource(resources.items[0]["uri"])
        assert read["contents"]
        assert await client.ping() > 0
        assert client.state is State.READY
    with subtests.test("an unknown tool is an answer and leaves the session ready"):
        try:
            refused = (await client.call_tool("no such tool", {})).is_error
        except RpcError as error:
            refused = error.fault is Fault.RPC_ERROR
        assert refused
        assert await client.ping() > 0
    with subtests.test("many calls at once get each its own answer"):
        results = await asyncio.gather(*(client.call_tool("echo", {key: f"n{n}."}) for n in range(50)))
        assert all(f"n{n}." in result.content[0]["text"] for n, result in enumerate(results))
        assert client.in_flight == 0


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_progress_of_a_long_tool_arrives_while_it_runs(transport: str) -> None:
    with spec_of("everything", transport) as spec:
        async with connected(spec) as made:
            seen: list[float] = []
            result = await made.client.call_tool(
                "trigger-long-running-operation",
                {"duration": 1, "steps": 4},
                on_progress=lambda value, total, message: seen.append(value),
                tag="long",
            )
            assert not result.is_error
            assert seen
            assert seen == sorted(seen)
            assert {event.tag for event in made.of(Progress)} == {"long"}


async def test_a_server_that_changes_its_tools_after_the_handshake_says_so() -> None:
    with spec_of("everything", "stdio") as spec:
        async with connected(spec) as made:
            for _ in range(100):
                if made.of(ListChanged):
                    break
                await asyncio.sleep(0.05)
            assert made.of(ListChanged)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_prompts_and_completions_are_asked_of_the_server(transport: str) -> None:
    with spec_of("everything", transport) as spec:
        async with connected(spec) as made:
            names = {prompt["name"] for prompt in (await made.client.list_prompts()).items}
            assert "simple-prompt" in names
            prompt = await made.client.get_prompt("simple-prompt", {})
            assert prompt["messages"]
            reference = {"type": "ref/prompt", "name": "completable-prompt"}
            completed = await made.client.complete(reference, {"name": "department", "value": "E"})
            assert "Engineering" in completed["completion"]["values"]


async def test_the_steps_of_a_connection_are_reported_in_order() -> None:
    with spec_of("sdk2", "http") as spec:
        steps: list[Step] = []
        client = unconnected(spec)
        await client.connect(steps.append)
        await client.close()
        assert [(step.name, step.status) for step in steps] == [
            (name, status) for name in ("resolve", "connect", "handshake") for status in ("started", "finished")
        ]
        assert all(step.seconds is not None and step.detail for step in steps if step.status == "finished")


async def test_the_step_that_fails_carries_its_error() -> None:
    steps: list[Step] = []
    with pytest.raises(TransportError) as caught:
        await unconnected(http("http://127.0.0.1:1/mcp")).connect(steps.append)
    assert (steps[-1].name, steps[-1].status, steps[-1].error) == ("connect", "failed", caught.value)
    assert caught.value.fault is Fault.CONNECTION_REFUSED


async def test_a_session_that_the_server_forgot_is_renewed_within_a_call() -> None:
    """The second server is a new process on the same port, so it knows none of the old session ids."""
    with run_peer("sdk1", "http") as url:
        port = int(url.split(":")[2].partition("/")[0])
        client = unconnected(http(url))
        await client.connect()
    with run_peer("sdk1", "http", port=port):
        await asyncio.sleep(0.1)  # starting a peer blocked the loop, which has not yet seen the old peer close
        result = await client.call_tool("echo", {"text": "again"})
        assert (result.attempts, result.content[0]["text"]) == (2, "again")
        await client.close()


async def test_npx_style_wrappers_leave_no_process_behind() -> None:
    shell = shutil.which("sh")
    assert shell
    command, args = peer_command("everything", "stdio")
    spec = StdioSpec(shell, ("-c", f"sleep 300 & {command} {args[0]} stdio"))
    before = children()
    async with connected(spec) as made:
        assert (await made.client.call_tool("echo", {"message": "x"})).content
        pids = {pid for child in children() - before for pid in descendants(child)}
        assert len(pids) >= 3
    assert all([await gone(pid) for pid in pids])
