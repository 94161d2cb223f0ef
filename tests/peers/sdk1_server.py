"""A peer written with the official Python SDK 1.x: legacy era only."""

from typing import Any

from mcp.server.fastmcp import Context, FastMCP, Image
from mcp.server.fastmcp.exceptions import ToolError
from mcp.shared.exceptions import McpError
from mcp.types import CallToolRequest, ErrorData, ToolAnnotations
from serving import serve
from toolbox import RPC_ERROR_CODE, RPC_ERROR_DATA, RPC_ERROR_MESSAGE, Sdk, install


def rpc_error() -> McpError:
    return McpError(ErrorData(code=RPC_ERROR_CODE, message=RPC_ERROR_MESSAGE, data=RPC_ERROR_DATA))


def answer_rpc_error_below_the_sdk() -> None:
    """SDK 1.x turns whatever a tool raises into isError; only its low-level handler can answer an error."""
    handlers = server._mcp_server.request_handlers
    original = handlers[CallToolRequest]

    async def handle(request: CallToolRequest) -> Any:
        if request.params.name == "rpc_error":
            raise rpc_error()
        return await original(request)

    handlers[CallToolRequest] = handle


server = FastMCP("sdk1-peer", instructions="A real server for tests, SDK 1.x.", log_level="WARNING")
install(
    server,
    Sdk(context=Context, tool_error=ToolError, image=Image, annotations=ToolAnnotations, rpc_error=rpc_error),
)
answer_rpc_error_below_the_sdk()

if __name__ == "__main__":
    serve(lambda: server.run("stdio"), server.streamable_http_app)
