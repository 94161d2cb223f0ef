"""How an entry is reached: command or URL, and the transport that its words mean."""

import re
from typing import Any

from django.core.exceptions import ValidationError

from servers.domain.importing.reading import Reading, as_text, folded, short
from servers.enums import TransportKind
from servers.validators import secret_arguments, split_command_line

_KINDS = {
    "stdio": TransportKind.STDIO,
    "local": TransportKind.STDIO,
    "http": TransportKind.AUTO_HTTP,
    "remote": TransportKind.AUTO_HTTP,
    "autohttp": TransportKind.AUTO_HTTP,
    "streamablehttp": TransportKind.STREAMABLE_HTTP,
    "httpstream": TransportKind.STREAMABLE_HTTP,
    "sse": TransportKind.HTTP_SSE,
    "httpsse": TransportKind.HTTP_SSE,
    "ws": TransportKind.WEBSOCKET,
    "websocket": TransportKind.WEBSOCKET,
}
_IN_CLEAR = (
    "An argument looks like a secret. Arguments are stored in clear and shown to whoever sees the server: make it an "
    "environment variable if the program takes one, or a reference such as ${MCP_TOKEN}."
)
# What comes before the path: all of it where a placeholder stands for the beginning.
_PLACE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:\$\{[^{}]*\}|[^/?#])*")


def connection(reading: Reading) -> dict[str, Any]:
    """Columns of a registration. `transport` is absent where the entry leaves it open between those of HTTP."""
    kind = _kind(reading)
    command, arguments = _command(reading)
    url = reading.text("url", "serverUrl", "endpoint")
    http_url = reading.text("httpUrl")
    if kind is None and command and (url or http_url):
        reading.problems.append("It has a command and a URL. Keep one, or say with “type” which one is meant.")
    if kind is TransportKind.STDIO or (kind is None and command):
        return _stdio(reading, command, arguments)
    if kind is None and not (url or http_url):
        reading.problems.append("It has neither a command nor a URL.")
    return _behind_url(reading, kind, url, http_url)


def _kind(reading: Reading) -> TransportKind | None:
    said = reading.text("type", "transport", "transportType")
    if not said:
        return None
    kind = _KINDS.get(folded(said))
    if kind is None:
        reading.problems.append(f"“{short(said)}” is no transport. Known are stdio, http, streamable-http, sse and ws.")
    return kind


def _command(reading: Reading) -> tuple[str, list[str]]:
    given = reading.take("command", "cmd")
    arguments = reading.texts("args", "arguments")
    words = [as_text(word) or "" for word in given] if isinstance(given, list) else [given or ""]
    if not all(isinstance(word, str) for word in words):
        reading.problems.append("command is not text.")
        return "", arguments
    return words[0] if words else "", words[1:] + arguments


def _stdio(reading: Reading, command: str, arguments: list[str]) -> dict[str, Any]:
    if " " in command.strip() and not arguments:
        command, arguments = _split(reading, command)
    if secret_arguments(arguments):
        reading.notes.append(_IN_CLEAR)
    return {
        "transport": TransportKind.STDIO,
        "command": reading.plain(command, "command"),
        "arguments": [reading.kept(argument, "argument") for argument in arguments],
        "working_directory": reading.kept(reading.text("cwd", "workingDirectory"), "working directory"),
    }


def _split(reading: Reading, command: str) -> tuple[str, list[str]]:
    try:
        split = split_command_line(command)
    except ValidationError:
        reading.problems.append("The quotes of the command line do not match.")
        return command, []
    reading.notes.append("The command line was split into the command and its arguments.")
    return split


def _behind_url(reading: Reading, kind: TransportKind | None, url: str, http_url: str) -> dict[str, Any]:
    columns: dict[str, Any] = {"url": _url(reading, (url or http_url).strip())}
    if "@" in columns["url"].partition("?")[0].partition("#")[0]:
        # The parser of URLs quotes what it cannot read, and here that may be a password.
        reading.problems.append(
            "Take the user name and password out of the URL and put them in a header: it is sealed."
        )
        columns["url"] = ""
    if kind is not None:
        columns["transport"] = kind
    elif http_url and not url:
        columns["transport"] = TransportKind.STREAMABLE_HTTP
    return columns


def _url(reading: Reading, url: str) -> str:
    """References stay in path and query; scheme, host and port are needed here, since secrets are bound to them."""
    place = _PLACE.match(url)
    end = place.end() if place else 0
    return reading.plain(url[:end], "URL") + reading.kept(url[end:], "URL")
