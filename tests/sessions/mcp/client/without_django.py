"""Drives a real stdio server with the client in a process without Django and queue, and prints what happened."""

import asyncio
import sys
from functools import partial

FOREIGN = ("django", "celery", "channels", "kombu", "redis", "servers", "mcpadmin")


class Blocked:
    """Makes every import of these packages fail, wherever it happens."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FOREIGN:
            raise ImportError(f"{name} is not to be imported here")


sys.meta_path.insert(0, Blocked())

from sessions.mcp.client import Client, TaskOptions  # noqa: E402 - the block above must come first
from sessions.mcp.core.capabilities import Implementation  # noqa: E402 - as above
from sessions.mcp.transports.registry import StdioSpec, open_transport  # noqa: E402 - as above


async def main(*args: str) -> None:
    spec = StdioSpec(sys.executable, args)
    client = Client(
        partial(open_transport, spec), client_info=Implementation("alone", "1"), on_event=lambda event: None
    )
    connected = await client.connect()
    tools = await client.list_tools()
    result = await client.call_tool("quick", {}, task=TaskOptions())
    print(connected.revision, len(tools.items), result.content[0]["text"])
    await client.close()
    loaded = {name.partition(".")[0] for name in sys.modules}
    print("loaded of others:", sorted(loaded & set(FOREIGN)))


asyncio.run(main(*sys.argv[1:]))
