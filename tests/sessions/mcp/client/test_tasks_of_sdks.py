"""Tasks of real servers: the official Python SDKs of both eras, and the official TypeScript example server."""

import asyncio
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sessions.mcp.client import InputRequest
from sessions.mcp.core.errors import Fault, McpError
from sessions.mcp.core.tasks import EXTENSION, Status, TaskOptions, TaskState
from sessions.mcp.transports.registry import Spec, StdioSpec
from tests.peers.peers import peer_command, peer_python, run_peer
from tests.sessions.mcp.transports.making import connected, http

pytestmark = pytest.mark.integration
PEERS = Path(__file__).with_name("sdk_peers")
EXTENSIONS = {"extensions": {EXTENSION: {}}, "elicitation": {"form": {}}}


async def blue(asked: InputRequest) -> Mapping[str, Any]:
    properties = asked.params["requestedSchema"]["properties"]
    return {"action": "accept", "content": {name: value(schema) for name, schema in properties.items()}}


def value(schema: Mapping[str, Any]) -> str:
    options = schema.get("enum") or [option["const"] for option in schema.get("oneOf", [])]
    return str(options[0]) if options else "blue"


def sdk(name: str, *args: str) -> StdioSpec:
    return StdioSpec(str(peer_python(name)), (str(PEERS / f"{name}_tasks.py"), *args))


ANSWERING: dict[str, Any] = {"answers": {"elicitation/create": blue}, "capabilities": EXTENSIONS}


async def test_tasks_of_the_python_sdk_1_end_ask_fail_and_are_cancelled(subtests: pytest.Subtests) -> None:
    async with connected(sdk("sdk1"), **ANSWERING) as made:
        with subtests.test("one comes to its end and is listed"):
            told: list[TaskState] = []
            result = await made.client.call_tool("double", {}, task=TaskOptions(60_000, told.append))
            assert result.content[0]["text"] == "84"
            assert told[-1].status is Status.COMPLETED
            assert [state.task_id for state in (await made.client.list_tasks()).items] == [told[0].task_id]
            assert result.raw["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": told[0].task_id}
        with subtests.test("the server asks its question while we wait for the result"):
            states: list[TaskState] = []
            result = await made.client.call_tool("ask", {}, task=TaskOptions(on_task=states.append))
            assert result.content[0]["text"] == "accept: blue"
            assert Status.INPUT_REQUIRED in {state.status for state in states}
        with subtests.test("one that fails is no success"):
            # This SDK stores no error for tasks/result, so its response looks like an empty success. Only the task's
            # state says it failed.
            with pytest.raises(McpError, match="it broke") as failed:
                await made.client.call_tool("fail", {}, task=TaskOptions())
            assert (failed.value.fault, failed.value.may_have_run) == (Fault.TASK_FAILED, True)
        with subtests.test("one is cancelled when its caller gives up"):
            ids: list[str] = []
            options = TaskOptions(on_task=lambda state: ids.append(state.task_id))
            with pytest.raises(McpError) as ended:
                await made.client.call_tool("endless", {}, task=options, total_timeout=1)
            assert ended.value.fault is Fault.TOTAL_DEADLINE
            async with asyncio.timeout(20):
                while True:
                    if (await made.client.get_task(ids[0])).status is Status.CANCELLED:
                        break
                    await asyncio.sleep(0.05)


@contextmanager
def everything(transport: str) -> Iterator[Spec]:
    if transport == "stdio":
        command, args = peer_command("everything", "stdio")
        yield StdioSpec(command, tuple(args))
    else:
        with run_peer("everything", "http") as url:
            yield http(url)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_task_of_the_typescript_sdk_asks_and_ends_over_both_transports(transport: str) -> None:
    with everything(transport) as spec:
        async with connected(spec, **ANSWERING) as made:
            told: list[TaskState] = []
            asked = {"topic": "python", "ambiguous": True}
            result = await made.client.call_tool(
                "simulate-research-query", asked, task=TaskOptions(120_000, told.append), total_timeout=60
            )
            assert not result.is_error
            assert "python" in result.content[0]["text"]
            statuses = [state.status for state in told]
            assert Status.INPUT_REQUIRED in statuses
            assert statuses[-1] is Status.COMPLETED


@contextmanager
def announced(spec: StdioSpec) -> Iterator[str]:
    """The URL of a peer that prints it to stderr once it listens."""
    process = subprocess.Popen([spec.command, *spec.args], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        yield next(line.strip() for line in lines if line.startswith("http://"))
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()


@contextmanager
def extension_peer(transport: str) -> Iterator[Spec]:
    if transport == "stdio":
        yield sdk("sdk2", "stdio")
    else:
        with announced(sdk("sdk2", "http")) as url:
            yield http(url)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_extension_on_the_python_sdk_2_asks_once_and_ends(transport: str) -> None:
    with extension_peer(transport) as spec:
        async with connected(spec, **ANSWERING) as made:
            told: list[TaskState] = []
            result = await made.client.call_tool("ask", {}, task=TaskOptions(on_task=told.append))
            assert result.content[0]["text"] == "blue"
            assert {state.status for state in told} == {Status.WORKING, Status.INPUT_REQUIRED, Status.COMPLETED}
            assert await made.client.cancel_task(told[0].task_id) is None
