"""A peer written with the official Python SDK 2.x: both eras, stdio and Streamable HTTP."""

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import ToolAnnotations
from serving import serve
from toolbox import RPC_ERROR_CODE, RPC_ERROR_DATA, RPC_ERROR_MESSAGE, Sdk, install

server = MCPServer("sdk2-peer", version="2.0", instructions="A real server for tests, SDK 2.x.", log_level="WARNING")
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
    serve(lambda: server.run("stdio"), server.streamable_http_app)
