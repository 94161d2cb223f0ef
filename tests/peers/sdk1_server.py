"""A peer written with the official Python SDK 1.x, in the release that its environment holds: legacy era only."""

import inspect
import weakref
from typing import Any

import anyio
from conversations import LEVELS, QUESTION, City, Talk, completions, install_conversations
from mcp.server.fastmcp import Context, FastMCP, Image
from mcp.server.fastmcp.exceptions import ToolError
from mcp.shared.exceptions import McpError
from mcp.types import CallToolRequest, Completion, ErrorData, SamplingMessage, TextContent
from sdk1_faces import all_faces, http_face
from sdk1_older import Tolerant, annotations
from serving import serve
from toolbox import RPC_ERROR_CODE, RPC_ERROR_DATA, RPC_ERROR_MESSAGE, Sdk, install


def rpc_error() -> McpError:
    return McpError(ErrorData(code=RPC_ERROR_CODE, message=RPC_ERROR_MESSAGE, data=RPC_ERROR_DATA))


def answer_rpc_error_below_the_sdk(server: FastMCP) -> None:
    """SDK 1.x turns every exception of a tool into isError. Only its low-level handler can respond with an error."""
    handlers = server._mcp_server.request_handlers
    original = handlers[CallToolRequest]

    async def handle(request: CallToolRequest) -> Any:
        if request.params.name == "rpc_error":
            raise rpc_error()
        return await original(request)

    handlers[CallToolRequest] = handle


async def ask_model(ctx: Context, question: str = "What is 2 + 2?") -> str:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=question))
    result = await ctx.request_context.session.create_message([message], max_tokens=50)
    return f"{result.model} says: {result.content.text}"


async def ask_person(ctx: Context) -> str:
    answer = await ctx.elicit(QUESTION, City)
    return f"{answer.action}: {answer.data.city}, {answer.data.visits}" if answer.action == "accept" else answer.action


def declare_completion(server: FastMCP) -> None:
    @server._mcp_server.completion()
    async def complete(ref: Any, argument: Any, *context: Any) -> Completion:
        return Completion(values=completions(argument.name, argument.value))


class Listeners:
    """The log level and subscriptions of each client session. The SDK stores neither."""

    def __init__(self, server: FastMCP) -> None:
        self._low = server._mcp_server
        self._levels: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._followers: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()

    def declare_logging(self) -> None:
        @self._low.set_logging_level()
        async def set_level(level: str) -> None:
            self._levels[self._low.request_context.session] = level

    def declare_subscribing(self) -> None:
        """The SDK has the handlers, but always declares `subscribe: false`."""

        @self._low.subscribe_resource()
        async def subscribe(uri: Any) -> None:
            self._followers.setdefault(self._low.request_context.session, set()).add(str(uri))

        @self._low.unsubscribe_resource()
        async def unsubscribe(uri: Any) -> None:
            self._followers.get(self._low.request_context.session, set()).discard(str(uri))

        original = self._low.get_capabilities

        def get_capabilities(*arguments: Any) -> Any:
            capabilities = original(*arguments)
            capabilities.resources.subscribe = True
            return capabilities

        self._low.get_capabilities = get_capabilities

    async def log(self, ctx: Context, level: str, text: str) -> None:
        session = ctx.request_context.session
        wanted = self._levels.get(session, "debug")
        if LEVELS.index(level) < LEVELS.index(wanted):
            return
        related = {"related_request_id": ctx.request_id} if _knows_related(session.send_log_message) else {}
        await session.send_log_message(level=level, data=text, logger="peer", **related)

    async def updated(self, ctx: Context, uri: str) -> None:
        for session, uris in list(self._followers.items()):
            if uri in uris:
                await self._tell(session, uri)

    async def _tell(self, session: Any, uri: str) -> None:
        try:
            await session.send_resource_updated(uri)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._followers.pop(session, None)  # that client has disconnected


def _knows_related(method: Any) -> bool:
    return "related_request_id" in inspect.signature(method).parameters


def build(*, stateless: bool = False) -> FastMCP:
    more = {"stateless_http": True} if stateless else {}
    server = FastMCP("sdk1-peer", instructions="A real server for tests, SDK 1.x.", log_level="WARNING", **more)
    install(Tolerant(server), Sdk(Context, ToolError, Image, annotations, rpc_error))
    answer_rpc_error_below_the_sdk(server)
    declare_completion(server)
    listeners = Listeners(server)
    listeners.declare_logging()
    talk = Talk(context=Context, log=listeners.log)
    if not stateless:  # a stateless server can send neither requests nor change notifications
        listeners.declare_subscribing()
        person = ask_person if hasattr(Context, "elicit") else None
        talk = Talk(Context, listeners.log, listeners.updated, ask_model, person)
    install_conversations(Tolerant(server), talk)
    return server


if __name__ == "__main__":
    serve(lambda: build().run("stdio"), lambda: http_face(build), lambda: all_faces(build))
