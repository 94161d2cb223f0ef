"""Tasks of 2025-11-25 as the official Python SDK 1.x serves them, over HTTP. Runs in the environment of sdk1.

The tool `slow` is done when the file TASK_RELEASE exists. TASK_LOG gets a line when it starts.
"""

import contextlib
import os
from pathlib import Path

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from serving import serve
from starlette.applications import Starlette
from starlette.routing import Mount

server = Server("sdk1-tasks")
support = server.experimental.enable_tasks()


@server.list_tools()
async def list_tools():
    execution = types.ToolExecution(taskSupport=types.TASK_REQUIRED)
    return [types.Tool(name="slow", inputSchema={"type": "object"}, execution=execution)]


def note_the_start() -> None:
    with Path(os.environ["TASK_LOG"]).open("a") as log:
        log.write("started\n")


def is_released() -> bool:
    return Path(os.environ["TASK_RELEASE"]).exists()


async def slow(task):
    note_the_start()
    await task.update_status("waiting for the release")
    while not is_released():  # noqa: ASYNC110  a file makes no event
        await anyio.sleep(0.1)
    return types.CallToolResult(content=[types.TextContent(type="text", text="released at last")])


@server.call_tool()
async def call_tool(name, arguments):
    return await server.request_context.experimental.run_task(slow)


manager = StreamableHTTPSessionManager(server)


@contextlib.asynccontextmanager
async def lifespan(app):
    async with support.run(), manager.run():
        # Each session enters this again, and the first to end stops it for all others.
        support.run = contextlib.nullcontext
        yield


if __name__ == "__main__":
    app = Starlette(routes=[Mount("/", app=manager.handle_request)], lifespan=lifespan)
    serve(lambda: None, lambda: app, lambda: app)
