"""A small server with a tool `search`, for bundles of servers that have tools of one name. Runs in the environment of
the peer sdk2: python searching_server.py NAME."""

import sys

from mcp.server.mcpserver import MCPServer

NAME = sys.argv[1]
server = MCPServer(NAME)


@server.tool(title="Search")
def search(query: str) -> str:
    """Searches."""
    return f"{NAME}: {query}"


@server.tool(name="odd.name/of a tool")
def odd() -> str:
    """A name that models do not accept."""
    return f"odd of {NAME}"


@server.resource("test://page")
def page() -> str:
    return f"page of {NAME}"


@server.resource("test://pages/{number}")
def numbered(number: str) -> str:
    return f"page {number} of {NAME}"


@server.prompt()
def ask(topic: str) -> str:
    return f"{NAME} about {topic}"


server.run()
