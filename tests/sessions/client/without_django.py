"""Drives a real stdio server by the client, in a process that has no Django and no queue: prints what it did."""

import asyncio
import sys
from functools import partial

FOREIGN = ("django", "celery", "channels", "kombu", "redis", "servers", "mcpadmin")


class Blocked:
    """Whatever asks for one of these fails at once, wherever the import hides."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FOREIGN:
            raise ImportError(f"{name} is not to be imported here")


sys.meta_path.insert(0, Blocked())

from sessions.client import Client, TaskWish  # noqa: E402  the block above has to be in place
from sessions.protocol.capabilities import Implementation  # noqa: E402  as above
from sessions.transports.registry import StdioSpec, open_transport  # noqa: E402  as above


async def main(*args: str) -> None:
    spec = StdioSpec(sys.executable, args)
    client = Client(
        partial(open_transport, spec), client_info=Implementation("alone", "1"), on_event=lambda event: None
    )
    connected = await client.connect()
    tools = await client.list_tools()
    result = await client.call_tool("quick", {}, task=TaskWish())
    print(connected.revision, len(tools.items), result.content[0]["text"])
    await client.close()
    loaded = {name.partition(".")[0] for name in sys.modules}
    print("loaded of others:", sorted(loaded & set(FOREIGN)))


asyncio.run(main(*sys.argv[1:]))
