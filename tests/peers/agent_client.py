"""An agent with the client of an official SDK or of FastMCP: does one thing of each kind at an endpoint for agents and
prints what it got as JSON.

Runs in the environments of the peers, so it imports nothing of ours: python agent_client.py FACE URL ASKING_URL TOKEN
[PREFIX ASKING_PREFIX], with FACE one of sdk1, sdk2-legacy, sdk2-auto, sdk2-2026-07-28, fastmcp. The prefixes are those of
the tools and prompts in a bundle.
"""
# ruff: noqa: PLC0415  # each environment has the packages of its own face only

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

FACE, URL, ASKING, TOKEN, PREFIX, ASKING_PREFIX = [*sys.argv[1:], "", ""][:6]
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
ANSWER = {"name": "Ann", "count": 3}
progress: list[float] = []


async def on_progress(done: float, total: float | None, message: str | None) -> None:
    progress.append(done)


@asynccontextmanager
async def sdk1(url: str) -> AsyncIterator[Any]:
    import httpx
    from mcp import ClientSession, types
    from mcp.client.streamable_http import streamable_http_client

    async def elicit(context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content=ANSWER)

    async with (
        httpx.AsyncClient(headers=HEADERS, timeout=60, follow_redirects=True) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write, elicitation_callback=elicit) as session,
    ):
        opened = await session.initialize()
        await session.send_ping()
        session.agreed = opened.protocolVersion
        yield session


@asynccontextmanager
async def sdk2(url: str) -> AsyncIterator[Any]:
    import httpx2
    import mcp_types as types
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async def elicit(context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content=ANSWER)

    async with (
        httpx2.AsyncClient(headers=HEADERS, timeout=60, follow_redirects=True) as http,
        Client(
            streamable_http_client(url, http_client=http), mode=FACE.removeprefix("sdk2-"), elicitation_callback=elicit
        ) as client,
    ):
        yield client


@asynccontextmanager
async def fastmcp(url: str) -> AsyncIterator[Any]:
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    async def elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
        return ANSWER

    async with Client(StreamableHttpTransport(url, headers=HEADERS), elicitation_handler=elicit) as client:
        yield client


def text_of(result: Any) -> str:
    return "".join(getattr(block, "text", "") for block in result.content)


def is_error(result: Any) -> bool:
    return bool(getattr(result, "isError", getattr(result, "is_error", False)))


def listed(found: Any, name: str) -> list[Any]:
    """A result of the SDKs, or the list itself."""
    return found if isinstance(found, list) else getattr(found, name)


async def do(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def call(tool: str, arguments: dict[str, Any], **more: Any) -> Any:
        return client.call_tool(PREFIX + tool, arguments, **more)

    quiet: dict[str, Any] = {"raise_on_error": False} if FACE == "fastmcp" else {}
    named = "progress_handler" if FACE == "fastmcp" else "progress_callback"
    found["tools"] = [tool.name for tool in listed(await client.list_tools(), "tools")]
    found["echo"] = text_of(await call("echo", {"text": "from an agent"}))
    added = await call("add", {"a": 20, "b": 22})
    found["structured"] = getattr(added, "structured_content", None) or getattr(added, "structuredContent", None)
    await call("slow", {"steps": 3, "delay": 0.05}, **{named: on_progress})
    found["progress"] = progress
    failed = await call("fail", {"message": "as asked"}, **quiet)
    found["failed"] = [is_error(failed), "as asked" in text_of(failed)]
    try:
        found["unknown"] = is_error(await call("nope", {}))
    except Exception as error:  # each client has its own error classes
        found["unknown"] = f"{type(error).__name__}: {error}"
    resources = listed(await client.list_resources(), "resources")
    uri = resources[0].uri
    read = await client.read_resource(uri)
    found["read"] = [str(one.uri) == str(uri) for one in (read if isinstance(read, list) else read.contents)]
    templates = await client.list_resource_templates()
    found["templates"] = len(
        listed(templates, "resource_templates" if FACE.startswith("sdk2") else "resourceTemplates")
    )
    prompts = listed(await client.list_prompts(), "prompts")
    prompt = next(one for one in prompts if one.arguments and one.name.startswith(PREFIX))
    arguments = {one.name: "a" for one in prompt.arguments}
    found["prompt"] = len((await client.get_prompt(prompt.name, arguments)).messages)
    found["completed"] = await completed(client, prompt.name, next(iter(arguments)))
    return found


async def completed(client: Any, prompt: str, argument: str) -> bool:
    if FACE == "sdk1":
        from mcp import types
    elif FACE == "fastmcp":
        from mcp import types  # its client takes the SDK's reference
    else:
        import mcp_types as types
    ref = types.PromptReference(type="ref/prompt", name=prompt)
    answer = await client.complete(ref, {"name": argument, "value": ""})
    values = getattr(answer, "values", None) if hasattr(answer, "values") else answer.completion.values
    return isinstance(values, list)


async def main() -> None:
    face = {"sdk1": sdk1, "fastmcp": fastmcp}.get(FACE, sdk2)
    async with face(URL) as client:
        found = await do(client)
    if ASKING:
        async with face(ASKING) as client:
            found["asked"] = text_of(await client.call_tool(ASKING_PREFIX + "pizza", {}))
    print("FOUND", json.dumps(found))


asyncio.run(main())
