"""A peer written with FastMCP, in an environment of its own."""

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image
from mcp.shared.exceptions import MCPError
from mcp_types import ToolAnnotations
from serving import serve
from toolbox import RPC_ERROR_CODE, RPC_ERROR_DATA, RPC_ERROR_MESSAGE, Sdk, install

server = FastMCP("fastmcp-peer", version="4.1", instructions="A real server for tests, FastMCP.")
install(
    server,
    Sdk(
        context=Context,
        tool_error=ToolError,
        image=Image,
        annotations=ToolAnnotations,
        rpc_error=lambda: MCPError(RPC_ERROR_CODE, RPC_ERROR_MESSAGE, RPC_ERROR_DATA),
    ),
)

if __name__ == "__main__":
    serve(lambda: server.run("stdio", show_banner=False), lambda: server.http_app(path="/mcp"))
