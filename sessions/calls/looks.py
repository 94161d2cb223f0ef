"""How calls look on pages and where they link to: pill, page, form. Also the URL of an icon."""

from functools import cache
from typing import Any

from django import template
from django.template.loader import render_to_string
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from servers.kit.tags import slug_url
from servers.models import Server
from sessions.calls.operations import completion_reference
from sessions.connections import icons
from sessions.enums import CallState
from sessions.mcp.core.methods import PROMPTS_GET, RESOURCES_READ, TOOLS_CALL
from sessions.models import Call, SavedCall

register = template.Library()

# state: (tone of the kit, icon)
LOOKS: dict[str, tuple[str, str]] = {
    CallState.HELD: ("warn", "hand-stop"),
    CallState.REQUESTED: ("run", "loader-2"),
    CallState.SENT: ("run", "loader-2"),
    CallState.SUCCEEDED: ("ok", "check"),
    CallState.TOOL_ERROR: ("bad", "alert-triangle"),
    CallState.RPC_ERROR: ("bad", "alert-circle"),
    CallState.FAILED: ("bad", "plug-x"),
    CallState.CANCELLED: ("warn", "player-stop"),
    CallState.OUTCOME_UNKNOWN: ("warn", "clock-x"),
    CallState.NOT_SENT: ("warn", "ban"),
    CallState.REFUSED: ("viol", "lock"),
    CallState.EXPIRED: ("warn", "clock-x"),
}


@register.simple_tag
def call_page(call: Call) -> str:
    """The URL of the page of the call's target, with the target selected. The call's server must still exist."""
    server = call.server.slug if call.server else ""
    if call.method == TOOLS_CALL:
        return _page("servers:tools", server, "tool", call.target)
    if call.method == RESOURCES_READ:
        return _page("servers:resources", server, "uri", call.target)
    if call.method == PROMPTS_GET:
        return _page("servers:prompts", server, "prompt", call.target)
    about = completion_reference(call.target)
    if "name" in about:
        return _page("servers:prompts", server, "prompt", about["name"])
    return _page("servers:resources", server, "template", about["uri"])


@register.simple_tag
def call_form(call: Call) -> str:
    """The URL of the form of the call's target, filled with its arguments; empty for a call without a form. Its server
    must still exist."""
    if call.method == RESOURCES_READ and call.server:
        return _page("servers:resources", call.server.slug, "call", str(call.uid))
    return f"{call_page(call)}&call={call.uid}" if call.method in (TOOLS_CALL, PROMPTS_GET) else ""


@register.simple_tag
def saved_form(saved: SavedCall) -> str:
    """The URL of the form of a saved call's target, filled with its arguments."""
    if saved.method == RESOURCES_READ:
        return _page("servers:resources", saved.server.slug, "uri", saved.target)
    name, key = ("servers:tools", "tool") if saved.method == TOOLS_CALL else ("servers:prompts", "prompt")
    return f"{_page(name, saved.server.slug, key, saved.target)}&saved={saved.uid}"


def _page(name: str, slug: str, key: str, target: str) -> str:
    return f"{slug_url(name, slug)}?{urlencode({key: target})}"


@register.simple_tag
@cache
def call_pill(state: str) -> SafeString:
    tone, icon = LOOKS[state]
    return render_to_string("calls/_pill.html", {"tone": tone, "icon": icon, "word": CallState(state).label})


@register.simple_tag
def icon_address(server: Server, named: Any) -> str:
    """The URL of our copy of the icon that the server declares for itself or for a tool; "" if there is none."""
    return icons.address(server, named)
