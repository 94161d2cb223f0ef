"""A stdio peer on the official Python SDK 2.x that asks a person in every way the protocol allows, in both eras.

Tools: `pizza` (a form with each kind of field), `visit` (a URL), `unlock` (refused with -32042 until the person has
visited a URL, for each `key` once; legacy only). Runs in the environment of the peer sdk2, so it imports nothing of ours.
"""

import os
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult, InputRequiredResult
from mcp_types.version import is_version_at_least

ADDRESS = os.environ.get("VISIT_URL", "https://pizza.example.com/pay?order=7")
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 2, "description": "On the box"},
        "email": {"type": "string", "title": "E-mail", "format": "email"},
        "size": {
            "type": "string",
            "title": "Size",
            "enum": ["s", "l"],
            "enumNames": ["Small", "Large"],
            "default": "l",
        },
        "count": {"type": "integer", "title": "How many", "minimum": 1, "maximum": 9, "default": 2},
        "spicy": {"type": "boolean", "title": "Spicy", "default": False},
    },
    "required": ["name", "count"],
}
server = MCPServer("asking-peer", instructions="Asks before it acts.", log_level="WARNING")
_visited: set[str] = set()


def _modern(ctx: Context) -> bool:
    return ctx.protocol_version is not None and is_version_at_least(ctx.protocol_version, "2026-07-28")


def _told(answer: ElicitResult | Any) -> str:
    content = ", ".join(f"{name}={value!r}" for name, value in sorted((getattr(answer, "content", None) or {}).items()))
    return f"{answer.action}: {content}" if content else str(answer.action)


def _round(ctx: Context, params: Any) -> InputRequiredResult | str:
    """One round of the modern era: request input, or return the input of the previous round."""
    given = (ctx.input_responses or {}).get("asked")
    if given is not None:
        return _told(given)
    return InputRequiredResult(input_requests={"asked": ElicitRequest(params=params)})


@server.tool()
async def pizza(ctx: Context) -> InputRequiredResult | str:
    """Asks what to bake."""
    question = "What shall I bake?\nIt is on the house."
    if _modern(ctx):
        return _round(ctx, ElicitRequestFormParams(message=question, requested_schema=FORM))
    return _told(await ctx.session.elicit_form(question, FORM, related_request_id=ctx.request_id))


@server.tool()
async def visit(ctx: Context) -> InputRequiredResult | str:
    """Asks the person to open an address."""
    if _modern(ctx):
        return _round(ctx, ElicitRequestURLParams(message="Please pay.", url=ADDRESS))
    answer = await ctx.elicit_url("Please pay.", ADDRESS, "order-7")
    await ctx.session.send_elicit_complete("order-7", ctx.request_id)
    return _told(answer)


@server.tool()
async def unlock(ctx: Context, key: str = "") -> str:
    """Refuses until an address was visited; the second time it goes through."""
    if key not in _visited:
        _visited.add(key)
        raise UrlElicitationRequiredError(
            [ElicitRequestURLParams(message="Unlock it first.", url=ADDRESS, elicitation_id=f"unlock-{key}")]
        )
    await ctx.session.send_elicit_complete(f"unlock-{key}")
    return "unlocked"


if __name__ == "__main__":
    server.run("stdio")
