"""Template tags for definitions: how their list was read, recent changes, what was removed."""

from typing import Any

from django import template
from django.template import Context
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from servers.enums import DefinitionChange, DefinitionKind
from servers.models import Server
from sessions.catalog import definition_versions
from sessions.catalog.definition_versions import Badge
from sessions.catalog.reading import ListReading, reading
from sessions.catalog.search import removed

register = template.Library()

# change: (tone of the kit, icon)
LOOKS: dict[str, tuple[str, str]] = {
    DefinitionChange.FIRST: ("line", "plus"),
    DefinitionChange.COMPATIBLE: ("ok", "check"),
    DefinitionChange.BREAKING: ("bad", "alert-triangle"),
    DefinitionChange.WORDS: ("line", "pencil"),
    DefinitionChange.REMOVED: ("warn", "trash"),
    DefinitionChange.RETURNED: ("run", "rotate-clockwise"),
}

#: the kinds listed on each tab
KINDS = {
    "tool": (DefinitionKind.TOOL,),
    "prompt": (DefinitionKind.PROMPT,),
    "resource": (DefinitionKind.RESOURCE, DefinitionKind.RESOURCE_TEMPLATE),
}
REMOVED_SHOWN = 50


@register.inclusion_tag("catalog/_reading.html", takes_context=True)
def catalog_reading(context: Context, noun: str, place: str = "list") -> dict[str, Any]:
    """How these lists were last read. Needs `server` and `mcp_session` in the context; `place` identifies the fragment
    in its page."""
    session = context.get("mcp_session")
    return {
        "reading": reading(session, KINDS[noun], context["server"]),
        "place": place,
        "server": context["server"],
        "may_refresh": _may_refresh(context),
        "csrf_token": context.get("csrf_token"),
    }


@register.simple_tag(takes_context=True)
def last_reading(context: Context, noun: str) -> ListReading | None:
    """For a page on which these lists have no entries: which could not be read, and why."""
    return reading(context.get("mcp_session"), KINDS[noun], context["server"])


def _may_refresh(context: Context) -> bool:
    server, permissions = context["server"], context.get("permissions") or {}
    return bool(server.enabled and server.archived_at is None and permissions.get("call_tool"))


@register.inclusion_tag("catalog/_change_pill.html")
def change_pill(change: str) -> dict[str, str]:
    tone, icon = LOOKS[change]
    return {"tone": tone, "icon": icon, "word": DefinitionChange(change).label}


@register.inclusion_tag("catalog/_change_badge.html")
def change_badge(server: Server, kind: str, key: str) -> dict[str, Any]:
    """ "Changed 2 h ago · breaking", with a link to the versions; empty without a recent change."""
    return _badge(server, kind, key) | {"link": True}


@register.simple_tag
def change_mark(server: Server, kind: str, key: str) -> SafeString:
    """The same without a link, for use inside another link. Few rows have a badge: no template is rendered for
    others."""
    found = _badge(server, kind, key) | {"link": False}
    return render_to_string("catalog/_change_badge.html", found) if found["badge"] else SafeString()


@register.inclusion_tag("catalog/_removed.html", takes_context=True)
def removed_definitions(context: Context, noun: str) -> dict[str, Any]:
    """The end of a list: what the server no longer offers, limited to what matches the search."""
    server, listing = context["server"], context.get("listing")
    key = (noun, listing.find if listing else "")
    kept = server.__dict__.setdefault("_removed_definitions", {})  # the list and a phone's picker show the same
    if key not in kept:
        kept[key] = removed(server, *KINDS[noun], find=key[1], most=REMOVED_SHOWN)
    return {"server": server, "found": kept[key]}


def _badge(server: Server, kind: str, key: str) -> dict[str, Any]:
    badge = _badges(server, kind).get(key)
    tone, icon = LOOKS[badge.change] if badge else ("", "")
    return {"server": server, "kind": kind, "key": key, "badge": badge, "tone": tone, "icon": icon}


def _badges(server: Server, kind: str) -> dict[str, Badge]:
    """Queried once per list of a page."""
    kept: dict[str, dict[str, Badge]] = server.__dict__.setdefault("_change_badges", {})
    if kind not in kept:
        kept[kind] = dict(definition_versions.badges(server, kind))
    return kept[kind]
