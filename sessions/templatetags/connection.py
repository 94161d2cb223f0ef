"""Words about the connection of a session: its head, its timeline, its process, the page of sessions."""

from django import template
from django.conf import settings

from servers.templatetags._words import Look, duration_words, session_look
from sessions.domain import queries
from sessions.models import ConnectionEvent, McpSession

register = template.Library()
_ICONS = {"Taken": "server-2", "Given back": "server-2"}


@register.filter
def phase(session: McpSession | None) -> str:
    """Which of the buttons make sense: see queries.phase."""
    return queries.phase(session)


@register.simple_tag
def try_each_ceiling() -> str:
    seconds = settings.RECONNECT_CEILING_SECONDS
    return "one try a minute" if seconds == 60 else f"one try every {duration_words(seconds * 1000)}"


@register.simple_tag
def event_look(event: ConnectionEvent) -> Look:
    """What is no change of state has a look of its own: it says nothing of how the session fares."""
    if event.title:
        return Look(event.title, "", _ICONS.get(event.title, "user"))
    return session_look(event.state, event.condition)
