"""A server on the official SDK 2.x whose resources and lists change when a tool is called; `stdio` or `http`."""

import socket
import sys

import uvicorn

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("feeds", version="1", log_level="WARNING")


@server.resource("note://one")
def one() -> str:
    return "one"


@server.tool()
async def change(uri: str, ctx: Context) -> str:
    await ctx.notify_resource_updated(uri)
    return "changed"


@server.tool()
async def grow(ctx: Context) -> str:
    await ctx.notify_tools_changed()
    await ctx.notify_resources_changed()
    await ctx.notify_prompts_changed()
    return "grown"


@server.tool()
def end_subscriptions() -> str:
    server._lowlevel_server._request_handlers["subscriptions/listen"].handler.close()
    return "ended"


class Announcing(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(f"http://{host}:{port}/mcp", file=sys.stderr, flush=True)


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    app = server.streamable_http_app()
    Announcing(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=1)).run()
