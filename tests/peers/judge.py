"""The official SDK's client as an independent check of a stdio server. Runs in the environment of the peer sdk2.

python judge.py <mode: auto|legacy|2026-07-28> <command> [arguments]    prints one JSON object
"""

import asyncio
import json
import sys

from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp_types import PromptReference, ResourceTemplateReference, ResourceUpdatedNotification


async def calls(client: Client) -> dict:
    steps: list[tuple[float, float | None]] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        steps.append((done, total))

    added = await client.call_tool("add", {"a": 2, "b": 3})
    slow = await client.call_tool("countdown", {"start": 3, "pause": 0.02}, progress_callback=on_progress)
    drawn = await client.call_tool("draw", {"size": 16})
    failed = await client.call_tool("fail_on_purpose", {})
    found = await client.call_tool("search_notes", {"tags": ["garden"]})
    return {
        "sum": added.structured_content["sum"],
        "slow": slow.content[0].text,
        "progress": steps,
        "image": [drawn.content[0].mime_type, len(drawn.content[0].data)],
        "failed": failed.is_error,
        "found": [note["name"] for note in found.structured_content["notes"]],
        "links": [block.uri for block in found.content if block.type == "resource_link"],
    }


async def readings(client: Client) -> dict:
    readme = await client.read_resource("demo://readme")
    note = await client.read_resource("demo://notes/lisbon")
    prompt = await client.get_prompt("summarise", {"note": "lisbon"})
    styles = await client.complete(PromptReference(name="summarise"), {"name": "style", "value": "b"})
    names = await client.complete(ResourceTemplateReference(uri="demo://notes/{name}"), {"name": "name", "value": "so"})
    return {
        "readme": readme.contents[0].mime_type,
        "note": note.contents[0].text.splitlines()[0],
        "prompt": [message.content.type for message in prompt.messages],
        "completions": [styles.completion.values, names.completion.values],
    }


async def lists(client: Client) -> dict:
    return {
        "tools": [tool.name for tool in (await client.list_tools()).tools],
        "resources": [resource.uri for resource in (await client.list_resources()).resources],
        "templates": [t.uri_template for t in (await client.list_resource_templates()).resource_templates],
        "prompts": [prompt.name for prompt in (await client.list_prompts()).prompts],
    }


async def clock_update(client: Client, updates: asyncio.Queue) -> str:
    """Subscribe to the clock, in the era's way, and return the URI of the first update."""
    if client.protocol_version < "2026":
        await client.subscribe_resource("demo://clock")
        return await asyncio.wait_for(updates.get(), 10)
    async with client.listen(resource_subscriptions=["demo://clock"]) as subscription:
        event = await asyncio.wait_for(anext(aiter(subscription)), 10)
        return str(event.uri)


async def main(mode: str, command: str, *args: str) -> dict:
    updates: asyncio.Queue = asyncio.Queue()

    async def on_message(message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            updates.put_nowait(str(message.params.uri))

    parameters = StdioServerParameters(command=command, args=list(args))
    async with Client(parameters, mode=mode, message_handler=on_message, read_timeout_seconds=20) as client:
        verdict = {"version": client.protocol_version, "server": client.server_info.name}
        for part in (lists, calls, readings):
            verdict |= await part(client)
        return verdict | {"updated": await clock_update(client, updates)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
