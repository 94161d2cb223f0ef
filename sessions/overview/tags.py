"""Template tags for a session's connection: its header, its timeline, its process, and the page of sessions."""

from typing import Any

from django import template
from django.conf import settings

from servers import instance
from servers.kit.words import Look, session_look
from servers.models import Server
from sessions.connections.starting import UNCONFIRMED, Starting
from sessions.connections.starting import starting as starting_of
from sessions.models import ConnectionEvent, McpSession
from sessions.overview import rows
from sessions.overview.server_row import Fix, fix
from sessions.overview.shown import ShownState
from sessions.overview.shown import shown as shown_of

register = template.Library()
#: title of a stored line -> what a page shows
_OWNERSHIP = {"Taken": ("Claimed", "server-2"), "Given back": ("Released", "server-2")}


@register.simple_tag
def shown(server: Server, session: McpSession | None) -> ShownState:
    """The session's state as every part of a page shows it: see sessions.overview.shown."""
    return shown_of(server, session)


@register.inclusion_tag("shell/_pill_state.html")
def session_pill(server: Server, session: McpSession | None) -> dict[str, Look]:
    return {"look": shown_of(server, session or None).look}


@register.simple_tag
def panel_words(words: str, what: str) -> str:
    """Replace {what} with `what`; servers.js does the same with the text of a frame."""
    return words.replace("{what}", what)


@register.simple_tag
def on_hold() -> bool:
    """Whether no session of this installation may be opened."""
    return instance.is_held()


@register.filter
def server_name(info: Any) -> str:
    """The server's name for itself, which is optional."""
    found = info if isinstance(info, dict) else {}
    return str(found.get("title") or found.get("name") or "not provided")


@register.simple_tag
def fix_of(server: Server, session: McpSession | None) -> Fix | None:
    """The link for fixing a failed session."""
    return fix(server, session) if session else None


@register.filter
def phase(session: McpSession | None) -> str:
    """Decides which buttons are shown: see rows.phase."""
    return rows.phase(session)


@register.simple_tag
def retry_pace() -> str:
    """How often connecting to a server with an open breaker is retried."""
    early, last = settings.RECONNECT_EARLY_CEILING_SECONDS, settings.RECONNECT_CEILING_SECONDS
    if early >= last:
        return f"retrying every {last:g} s"
    return (
        f"retrying every {early:g} s in the first {settings.RECONNECT_EARLY_MINUTES:g} minutes, then every {last:g} s"
    )


@register.simple_tag
def starting(server: Server, session: McpSession | None) -> Starting | None:
    """The process that is being started, if any."""
    return starting_of(server, session)


@register.simple_tag
def unconfirmed_words() -> str:
    return UNCONFIRMED


@register.simple_tag
def event_look(event: ConnectionEvent) -> Look:
    """A line that is not a state change has its own look, independent of the session's state."""
    if event.title:
        word, icon = _OWNERSHIP.get(event.title, (event.title, "user"))
        return Look(word, "", icon)
    return session_look(event.state, event.condition)
