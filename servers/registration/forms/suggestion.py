"""Suggests a transport for what was typed or pasted, with one line on when to use it."""

import re
from dataclasses import dataclass, field

from django.core.exceptions import ValidationError

from servers.enums import TransportKind
from servers.registration.forms.uses import use
from servers.validators import split_command_line

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_WEBSOCKET = re.compile(r"wss?://", re.IGNORECASE)
# "localhost:3000/mcp", "mcp.example.com/mcp": a host with a port or a path, without spaces.
_HOST = re.compile(
    r"(?:localhost|\d{1,3}(?:\.\d{1,3}){3}|[a-z0-9-]+(?:\.[a-z0-9-]+)+)(?::\d{1,5})?/\S*|localhost:\d+", re.I
)
# "htp:/example.com", "https;//example.com", "https//example.com". One letter before the colon is a drive of Windows.
_MISTYPED_URL = re.compile(r"[a-z]{2,}[a-z0-9.+-]*[:;]\S+|(?:https?|wss?)//\S+", re.IGNORECASE)
_LOCAL = re.compile(r"(?:localhost|127\.)", re.IGNORECASE)


@dataclass(frozen=True)
class Suggestion:
    transport: TransportKind
    url: str = ""
    command: str = ""
    arguments: list[str] = field(default_factory=list)

    @property
    def reason(self) -> str:
        return use(self.transport)


def transport_of(url: str) -> TransportKind:
    """For HTTP, the transport is detected on connect."""
    return TransportKind.WEBSOCKET if _WEBSOCKET.match(url) else TransportKind.AUTO_HTTP


def suggest(text: str) -> Suggestion:
    """A URL or a bare host means HTTP or WebSocket, anything else is a command line. Raises ValidationError for a
    mistyped URL, which would otherwise be started as a program, and for a command line with unmatched quotes."""
    text = text.strip()
    if _URL.match(text):
        return Suggestion(transport_of(text), url=text)
    if _HOST.fullmatch(text):
        scheme = "http" if _LOCAL.match(text) else "https"
        return Suggestion(TransportKind.AUTO_HTTP, url=f"{scheme}://{text}")
    if _MISTYPED_URL.fullmatch(text):
        raise ValidationError("This looks like a URL. Start it with https://, http://, wss:// or ws://.", code="scheme")
    command, arguments = split_command_line(text)
    return Suggestion(TransportKind.STDIO, command=command, arguments=arguments)
