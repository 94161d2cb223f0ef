"""A note server on the official SDK 1.x: `stdio` or `http PORT`. With DEAF set, it does not declare subscriptions."""

import os
import weakref

import anyio
import notes
import uvicorn
from mcp.server.fastmcp import FastMCP

server = FastMCP("notes", log_level="WARNING")
low = server._mcp_server
followers: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()


async def tell(uri: str) -> None:
    for session, uris in list(followers.items()):
        if uri in uris:
            try:
                await session.send_resource_updated(uri)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                followers.pop(session, None)


@server.resource("note://{name}")
async def note(name: str) -> str:
    notes.tell_from_now_on(tell)
    return notes.read(name)


if not os.environ.get("DEAF"):

    @low.subscribe_resource()
    async def subscribe(uri) -> None:
        if str(uri) == "note://forbidden":
            raise ValueError("this note is nobody's business")
        followers.setdefault(low.request_context.session, set()).add(str(uri))

    @low.unsubscribe_resource()
    async def unsubscribe(uri) -> None:
        followers.get(low.request_context.session, set()).discard(str(uri))

    original = low.get_capabilities

    def get_capabilities(*arguments):
        capabilities = original(*arguments)
        capabilities.resources.subscribe = True
        return capabilities

    low.get_capabilities = get_capabilities

notes.announce_process()
kind, port = notes.mode()
if kind == "stdio":
    server.run("stdio")
else:
    app = server.streamable_http_app()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", timeout_graceful_shutdown=1)
