"""A note server on the official SDK 2.x, for modern clients: `stdio` or `http PORT`."""

import notes
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.subscriptions import ResourceUpdated

bus = InMemorySubscriptionBus()
server = MCPServer("notes", version="1", log_level="WARNING", subscriptions=bus)


async def tell(uri: str) -> None:
    await bus.publish(ResourceUpdated(uri=uri))


@server.resource("note://{name}")
async def note(name: str) -> str:
    notes.tell_from_now_on(tell)
    return notes.read(name)


notes.announce_process()
kind, port = notes.mode()
if kind == "stdio":
    server.run("stdio")
else:
    app = server.streamable_http_app()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", timeout_graceful_shutdown=1)
