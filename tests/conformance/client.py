"""Drives our client through one scenario of the conformance suite, which selects it through the environment.

    MCP_CONFORMANCE_SCENARIO=tools_call python -m tests.conformance.client http://localhost:3000/mcp

A good run prints MARKER as its last line, because the suite's own verdict does not notice a client that crashed.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from sessions.mcp.client import Client, InputRequest, Refused, Root
from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.errors import McpError
from sessions.mcp.core.results import Timeouts
from sessions.mcp.transports.egress import OutboundPolicy
from sessions.mcp.transports.registry import HttpSpec, open_transport
from tests.conformance.authorizing import EXPECTED, authorization

MARKER: Final = "driver: every step done"
Scenario = Callable[[Client], Awaitable[None]]


async def accept_defaults(asked: InputRequest) -> Mapping[str, Any]:
    """A person who submits the form unchanged."""
    properties = asked.params.get("requestedSchema", {}).get("properties", {})
    return {"action": "accept", "content": {key: one["default"] for key, one in properties.items() if "default" in one}}


async def refuse(asked: InputRequest) -> Mapping[str, Any]:
    raise Refused(message="No model is connected to this client.")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    policy = OutboundPolicy(allow_loopback=True)
    holder = authorization(os.environ["MCP_CONFORMANCE_SCENARIO"], url, policy, context())
    client = Client(
        partial(open_transport, HttpSpec(url, policy=policy, authorization=holder)),
        client_info=Implementation("mcpadmin-conformance", "1"),
        answers={"elicitation/create": accept_defaults, "sampling/createMessage": refuse},
        roots=(Root("file:///srv/conformance", "conformance"),),
        timeouts=Timeouts(request=30, tool=30, total=60),
        on_event=lambda event: print(event, file=sys.stderr),
    )
    try:
        opened = await client.connect()
        print(f"{opened.revision}, by {opened.decided_by}", file=sys.stderr)
        yield client
    finally:
        await client.close()


def context() -> dict[str, Any]:
    """What the suite passes to some scenarios: values to send, credentials."""
    given: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    return given


# -- scenarios


async def list_tools(client: Client) -> None:
    await client.list_tools()


async def call_first(client: Client) -> None:
    tools = (await client.list_tools()).items
    await client.call_tool(tools[0]["name"], {})


async def ask_again(client: Client) -> None:
    """The server of this scenario offers nothing. It checks the requests themselves."""
    await client.list_tools()
    await client.ping()


async def call_every(client: Client) -> None:
    for tool in (await client.list_tools()).items:
        await client.call_tool(tool["name"], {}, input_schema=tool["inputSchema"])


async def call(name: str, arguments: Mapping[str, Any], client: Client) -> None:
    await client.list_tools()
    await client.call_tool(name, arguments)


async def use_everything(client: Client) -> None:
    await call_every(client)
    for resource in (await client.list_resources()).items:
        await client.read_resource(resource["uri"])
    for prompt in (await client.list_prompts()).items:
        await client.get_prompt(prompt["name"], {})


async def call_as_told(client: Client) -> None:
    """The suite names the tools and arguments of the calls."""
    await client.list_tools()
    for wanted in context()["toolCalls"]:
        await client.call_tool(wanted["name"], wanted["arguments"])


async def call_with_and_without_state(client: Client) -> None:
    tools = {tool["name"] for tool in (await client.list_tools()).items}
    for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
        if f"test_mrtr_{name}" in tools:
            await client.call_tool(f"test_mrtr_{name}", {})


async def echo_schema(client: Client) -> None:
    tools = {tool["name"]: tool for tool in (await client.list_tools()).items}
    schema = tools["json_schema_2020_12_tool"]["inputSchema"]
    await client.call_tool("json_schema_echo", {"schema": schema})


SCENARIOS: Final[dict[str, Scenario]] = {
    "initialize": list_tools,
    "tools_call": partial(call, "add_numbers", {"a": 5, "b": 3}),
    "elicitation-sep1034-client-defaults": partial(call, "test_client_elicitation_defaults", {}),
    "request-metadata": ask_again,
    "sse-retry": partial(call, "test_reconnection", {}),
    "sep-2322-client-request-state": call_with_and_without_state,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_every,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
}


async def main(url: str) -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    try:
        async with connected(url) as client:
            await SCENARIOS.get(scenario, call_first)(client)
    except McpError as exc:
        if exc.fault not in EXPECTED.get(scenario, ()):
            raise
        print(f"refused, as it should be: {exc}", file=sys.stderr)
    else:
        if scenario in EXPECTED:
            sys.exit("The client went on where it should have refused.")
    print(MARKER)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
