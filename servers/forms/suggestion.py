"""From what was typed or pasted to a transport, with one line on when to use which."""

import re
from dataclasses import dataclass, field

from servers.enums import TransportKind
from servers.validators import split_command_line

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# "localhost:3000/mcp", "mcp.example.com/mcp": a host with a port or a path, and no blank.
_HOST = re.compile(
    r"(?:localhost|\d{1,3}(?:\.\d{1,3}){3}|[a-z0-9-]+(?:\.[a-z0-9-]+)+)(?::\d{1,5})?/\S*|localhost:\d+", re.I
)
_LOCAL = re.compile(r"(?:localhost|127\.)", re.IGNORECASE)
USE_HTTP = "Streamable HTTP: the server runs somewhere already, and you have its URL."
USE_STDIO = (
    "stdio: mcpadmin starts the server itself, as a process on a worker. Use it for programs such as npx or uvx."
)


@dataclass(frozen=True)
class Suggestion:
    transport: TransportKind
    reason: str
    url: str = ""
    command: str = ""
    arguments: list[str] = field(default_factory=list)


def suggest(text: str) -> Suggestion:
    """Raises ValidationError when a command line's quotes do not match."""
    text = text.strip()
    if _URL.match(text):
        return Suggestion(TransportKind.STREAMABLE_HTTP, USE_HTTP, url=text)
    if _HOST.fullmatch(text):
        scheme = "http" if _LOCAL.match(text) else "https"
        return Suggestion(TransportKind.STREAMABLE_HTTP, USE_HTTP, url=f"{scheme}://{text}")
    command, arguments = split_command_line(text)
    return Suggestion(TransportKind.STDIO, USE_STDIO, command=command, arguments=arguments)


def suggest_transport(text: str) -> tuple[TransportKind, str]:
    """(transport, why): a URL or a bare host means HTTP, anything else is a command line."""
    suggestion = suggest(text)
    return suggestion.transport, suggestion.reason
