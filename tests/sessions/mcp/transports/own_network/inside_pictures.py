"""The protocol client never fetches icons or other addresses that a server writes about itself (R1, R5)."""

from functools import partial
from typing import Any

from sessions.mcp.transports.egress import OutboundPolicy
from sessions.mcp.transports.registry import HttpSpec

from ..making import connected
from ..scripted_http import INITIALIZED, Asked, Line, scripted_http
from .names import Names
from .wall import PUBLIC, Wall

ICONS = [{"src": f"{scheme}://{host}/icon.png", "mimeType": "image/png", "sizes": ["48x48"]}
         for scheme in ("http", "https") for host in ("169.254.169.254", "internal.test", "localhost", "1.2.3.4")]  # fmt: skip
ABOUT = {"icons": ICONS, "websiteUrl": "http://internal.test/about"}
LISTS: dict[str, Any] = {
    "initialize": INITIALIZED
    | {"capabilities": {"tools": {}, "resources": {}, "prompts": {}}}
    | {"serverInfo": {"name": "pictures", "version": "1", **ABOUT}},
    "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}, **ABOUT}]},
    "resources/list": {"resources": [{"uri": "http://internal.test/", "name": "r", **ABOUT}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "http://internal.test/{x}", "name": "r"}]},
    "prompts/list": {"prompts": [{"name": "p", **ABOUT}]},
    "tools/call": {"content": [{"type": "resource_link", "uri": "http://internal.test/", "name": "l", **ABOUT}]},
}


async def script(asked: Asked, line: Line) -> None:
    if asked.verb != "POST":
        await line.reply(405, kind="")
    elif asked.method in LISTS:
        await line.result(asked, LISTS[asked.method])
    else:
        await (line.reply(202, kind="") if asked.id is None else line.error(asked, -32601))


async def test_no_icon_is_fetched(names: Names, wall: Wall) -> None:
    async with scripted_http(script, PUBLIC, 8080, reuse_port=True) as peer:
        spec = HttpSpec("http://mcp.here.test:8080/mcp", policy=OutboundPolicy())
        async with connected(spec) as made:
            client = made.client
            for ask in (
                client.list_tools,
                client.list_resources,
                client.list_resource_templates,
                client.list_prompts,
                partial(client.call_tool, "t", {}),
            ):
                await ask()
        assert {"tools/list", "resources/list", "prompts/list", "tools/call"} <= set(peer.methods())
    assert await wall.reached() == set()
    assert {name for name, _ in names.asked} == {"mcp.here.test"}
