"""Tasks of 2025-11-25 as the official Python SDK 1.x serves them (experimental support): stdio."""

import anyio

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

server = Server("sdk1-tasks")
server.experimental.enable_tasks()
SCHEMA = {"type": "object", "properties": {"v": {"type": "string"}}, "required": ["v"]}


def done(text):
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


@server.list_tools()
async def list_tools():
    required = types.ToolExecution(taskSupport=types.TASK_REQUIRED)
    return [
        types.Tool(name=name, inputSchema={"type": "object"}, execution=required)
        for name in ("double", "ask", "fail", "endless")
    ]


async def double(task):
    await task.update_status("on it")
    await anyio.sleep(0.2)
    return done("84")


async def ask(task):
    answer = await task.elicit("Which?", SCHEMA)
    return done(f"{answer.action}: {(answer.content or {}).get('v')}")


async def fail(task):
    raise RuntimeError("it broke")


async def endless(task):
    await anyio.sleep(600)


WORK = {"double": double, "ask": ask, "fail": fail, "endless": endless}


@server.call_tool()
async def call_tool(name, arguments):
    context = server.request_context.experimental
    context.validate_task_mode(types.TASK_REQUIRED)
    return await context.run_task(WORK[name])


async def main():
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


anyio.run(main)
