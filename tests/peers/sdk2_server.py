"""A peer written with the official Python SDK 2.x: both eras, stdio, Streamable HTTP, HTTP+SSE."""

from importlib.metadata import version
from typing import Annotated, Any

from conversations import LEVELS, QUESTION, City, Talk, completions, install_conversations
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp.shared.exceptions import MCPError
from mcp_types import (
    Completion,
    CreateMessageResult,
    EmptyResult,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    ToolAnnotations,
    UnsubscribeRequestParams,
)
from sdk2_faces import all_faces
from serving import serve
from toolbox import RPC_ERROR_CODE, RPC_ERROR_DATA, RPC_ERROR_MESSAGE, Sdk, install

SDK = Sdk(
    context=Context,
    tool_error=ToolError,
    image=Image,
    annotations=ToolAnnotations,
    rpc_error=lambda: MCPError(RPC_ERROR_CODE, RPC_ERROR_MESSAGE, RPC_ERROR_DATA),
)


def the_question(question: str) -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(type="text", text=question))], max_tokens=50)


def the_form() -> Elicit[City]:
    return Elicit(QUESTION, City)


async def ask_model(
    answer: Annotated[CreateMessageResult, Resolve(the_question)], question: str = "What is 2 + 2?"
) -> str:
    return f"{answer.model} says: {answer.content.text}"


async def ask_person(answer: Annotated[ElicitationResult[City], Resolve(the_form)]) -> str:
    return f"{answer.action}: {answer.data.city}, {answer.data.visits}" if answer.action == "accept" else answer.action


class Legacy:
    """Log levels and subscriptions of legacy sessions, which the SDK leaves to the server."""

    def __init__(self, server: MCPServer) -> None:
        self._server = server
        self._levels: dict[Any, str] = {}
        self._followers: dict[Any, tuple[Any, set[str]]] = {}

    def declare(self, *, stateless: bool) -> None:
        add = self._server._lowlevel_server.add_request_handler
        add("logging/setLevel", SetLevelRequestParams, self._set_level)
        if not stateless:
            add("resources/subscribe", SubscribeRequestParams, self._subscribe)
            add("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)

    async def _set_level(self, ctx: Any, params: SetLevelRequestParams) -> EmptyResult:
        self._levels[_connection(ctx)] = params.level
        return EmptyResult()

    async def _subscribe(self, ctx: Any, params: SubscribeRequestParams) -> EmptyResult:
        self._followers.setdefault(_connection(ctx), (ctx.session, set()))[1].add(str(params.uri))
        return EmptyResult()

    async def _unsubscribe(self, ctx: Any, params: UnsubscribeRequestParams) -> EmptyResult:
        self._followers.get(_connection(ctx), (None, set()))[1].discard(str(params.uri))
        return EmptyResult()

    async def log(self, ctx: Context, level: str, text: str) -> None:
        wanted = self._levels.get(_connection(ctx), "debug")
        if LEVELS.index(level) >= LEVELS.index(wanted):
            await ctx.log(level, text, logger_name="peer")

    async def updated(self, ctx: Context, uri: str) -> None:
        """Notify modern clients on their listen streams and legacy ones on the session that subscribed."""
        await ctx.notify_resource_updated(uri)
        for session, uris in self._followers.values():
            if uri in uris:
                await session.send_resource_updated(uri)


def _connection(ctx: Any) -> Any:
    """A session object lives for one request, its connection as long as the client's session."""
    return ctx.session._connection


def build(*, stateless: bool = False) -> MCPServer:
    words = "A real server for tests, SDK 2.x."
    server = MCPServer("sdk2-peer", version=version("mcp"), instructions=words, log_level="WARNING")
    install(server, SDK)

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=completions(argument.name, argument.value))

    legacy = Legacy(server)
    legacy.declare(stateless=stateless)
    # Without sessions, the server cannot send requests to a legacy client, and both eras share one set of tools.
    asking = {} if stateless else {"ask_model": ask_model, "ask_person": ask_person}
    install_conversations(server, Talk(Context, legacy.log, legacy.updated, **asking))
    return server


if __name__ == "__main__":
    serve(lambda: build().run("stdio"), lambda: build().streamable_http_app(), lambda: all_faces(build))
