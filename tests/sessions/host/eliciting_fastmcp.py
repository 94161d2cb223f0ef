"""A FastMCP 4 server over stdio, as its users write them: its tool calls `ctx.elicit`."""

from fastmcp import Context, FastMCP
from pydantic import BaseModel


class City(BaseModel):
    city: str


server = FastMCP("eliciting")


@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Which city?", City)
    return f"{answer.action} {getattr(answer, 'data', '')}"


server.run("stdio", show_banner=False)
