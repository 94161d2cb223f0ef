"""A peer written with FastMCP, in a separate environment: both eras, stdio, Streamable HTTP, HTTP+SSE."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from conversations import QUESTION, City, Talk, completions, install_conversations
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
    ToolAnnotations,
)
from serving import serve
from starlette.applications import Starlette
from starlette.routing import Mount
from toolbox import RPC_ERROR_CODE, RPC_ERROR_DATA, RPC_ERROR_MESSAGE, Sdk, install

MODERN = "2026-07-28"
SDK = Sdk(
    context=Context,
    tool_error=ToolError,
    image=Image,
    annotations=ToolAnnotations,
    rpc_error=lambda: MCPError(RPC_ERROR_CODE, RPC_ERROR_MESSAGE, RPC_ERROR_DATA),
)


def is_modern(ctx: Context) -> bool:
    return ctx.request_context.protocol_version == MODERN


async def ask_model(ctx: Context, question: str = "What is 2 + 2?") -> Any:
    messages = [SamplingMessage(role="user", content=TextContent(type="text", text=question))]
    if not is_modern(ctx):
        answer = await ctx.session.create_message(messages, max_tokens=50, related_request_id=ctx.request_id)
    elif ctx.input_responses is None:
        params = CreateMessageRequestParams(messages=messages, max_tokens=50)
        return InputRequiredResult(input_requests={"model": CreateMessageRequest(params=params)})
    else:
        answer = ctx.input_responses["model"]
    return f"{answer.model} says: {answer.content.text}"


async def ask_person(ctx: Context) -> Any:
    if not is_modern(ctx):
        answer = await ctx.elicit(QUESTION, City)
        data = answer.data if answer.action == "accept" else None
    elif ctx.input_responses is None:
        params = ElicitRequestFormParams(message=QUESTION, requested_schema=City.model_json_schema())
        return InputRequiredResult(input_requests={"city": ElicitRequest(params=params)})
    else:
        answer = ctx.input_responses["city"]
        data = City.model_validate(answer.content) if answer.action == "accept" else None
    return f"accept: {data.city}, {data.visits}" if data else answer.action


async def log(ctx: Context, level: str, text: str) -> None:
    await ctx.log(text, level=level, logger_name="peer")


def build(*, stateless: bool = False) -> FastMCP:
    server = FastMCP("fastmcp-peer", version=version("fastmcp"), instructions="A real server for tests, FastMCP.")
    install(server, SDK)

    @server.completion
    async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
        return completions(argument.name, argument.value)

    # FastMCP has no resource subscriptions in either era, so `touch` is missing. Without sessions, the server cannot
    # send requests to a legacy client, and both eras share one set of tools.
    asking = {} if stateless else {"ask_model": ask_model, "ask_person": ask_person}
    install_conversations(server, Talk(Context, log, **asking))
    return server


def all_faces() -> Starlette:
    """Serve /mcp, /stateless/mcp and /sse in one process."""
    with_sessions = build().http_app(path="/mcp")
    without = build(stateless=True).http_app(path="/mcp", stateless_http=True)
    sse = build().http_app(path="/sse", transport="sse")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with with_sessions.lifespan(app), without.lifespan(app), sse.lifespan(app):
            yield

    return Starlette(routes=[Mount("/stateless", app=without), *sse.routes, *with_sessions.routes], lifespan=lifespan)


if __name__ == "__main__":
    serve(
        lambda: build().run("stdio", show_banner=False),
        lambda: build().http_app(path="/mcp"),
        all_faces,
    )
