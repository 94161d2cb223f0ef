"""A server over stdio as its users write them: its tool calls `ctx.elicit`. On FastMCP 4 where that is installed, otherwise
on the official SDK 2.x; both send their question as a request, which the modern era does not have."""

from pydantic import BaseModel

try:
    from fastmcp import Context, FastMCP
except ImportError:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as FastMCP


class City(BaseModel):
    city: str


server = FastMCP("eliciting")


@server.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Which city?", City)
    return f"{answer.action} {getattr(answer, 'data', '')}"


server.run("stdio")
