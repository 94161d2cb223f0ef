"""How to reach an entry: command or URL, and the transport that it specifies."""

import re
from typing import Any

from django.core.exceptions import ValidationError

from servers.enums import TransportKind
from servers.registration.importing.entry_reader import EntryReader, as_text, folded, short
from servers.validators import secret_arguments, shell_script, split_command_line

_KINDS = {
    "stdio": TransportKind.STDIO,
    "local": TransportKind.STDIO,
    "command": TransportKind.STDIO,
    "process": TransportKind.STDIO,
    "http": TransportKind.AUTO_HTTP,
    "remote": TransportKind.AUTO_HTTP,
    "autohttp": TransportKind.AUTO_HTTP,
    "streamablehttp": TransportKind.STREAMABLE_HTTP,
    "httpstream": TransportKind.STREAMABLE_HTTP,
    "streaminghttp": TransportKind.STREAMABLE_HTTP,
    "streamable": TransportKind.STREAMABLE_HTTP,
    "sse": TransportKind.HTTP_SSE,
    "httpsse": TransportKind.HTTP_SSE,
    "ws": TransportKind.WEBSOCKET,
    "websocket": TransportKind.WEBSOCKET,
}
_IN_CLEAR = (
    "An argument looks like a secret. Arguments are stored in plain text and visible to everyone who can view this "
    "server: use an environment variable if the program accepts one, or a reference such as ${MCP_TOKEN}."
)
# Programs that start a command line even if some of its arguments are listed separately.
_LAUNCHERS = frozenset(
    {
        "npx",
        "uvx",
        "uv",
        "node",
        "bunx",
        "bun",
        "deno",
        "pnpm",
        "yarn",
        "python",
        "python3",
        "docker",
        "podman",
        "dnx",
        "pipx",
    }
)
_REFERENCE = re.compile(r"(?<!\$)\$\{")
# The part before the path, even if the beginning is a placeholder.
_PLACE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:\$\{[^{}]*\}|[^/?#])*")


def connection(reading: EntryReader) -> dict[str, Any]:
    """Columns of a registration. `transport` is absent if the entry does not say which HTTP transport it uses."""
    kind = _kind(reading)
    command, arguments, is_line = _command(reading)
    url = reading.text("url", "serverUrl", "endpoint", "uri")
    http_url = reading.text("httpUrl")
    if kind is None and command and (url or http_url):
        reading.problems.append("Both a command and a URL are set. Remove one, or set “type”.")
    if kind is TransportKind.STDIO or (kind is None and command):
        if is_line:
            try:
                command, first = split_command_line(command)
            except ValidationError:
                reading.problems.append("The command line has unmatched quotes.")
            else:
                reading.notes.append("The command line was split into the command and its arguments.")
                arguments = first + arguments
        return _stdio(reading, command, arguments)
    if kind is None and not (url or http_url):
        reading.problems.append(
            "A Zed extension starts this server. Enter the command that it runs."
            if reading.take("settings") is not None
            else "Neither a command nor a URL is set."
        )
    return _behind_url(reading, kind, url, http_url)


def _kind(reading: EntryReader) -> TransportKind | None:
    said = reading.text("type", "transport", "transportType")
    if not said or folded(said) in ("mcp", "auto", "custom"):
        return None
    kind = _KINDS.get(folded(said))
    if kind is None:
        reading.problems.append(f"“{short(said)}” is not a transport. Use stdio, http, streamable-http, sse or ws.")
    return kind


def _command(reading: EntryReader) -> tuple[str, list[str], bool]:
    """Command, arguments, and whether the command is a whole command line. A list, or an mcpadmin export, is already
    split."""
    given = reading.take("command", "cmd")
    arguments = reading.texts("args", "arguments")
    words = [as_text(word) or "" for word in given] if isinstance(given, list) else [given or ""]
    if not all(isinstance(word, str) for word in words):
        reading.problems.append("command must be a string.")
        return "", arguments, False
    command = words[0] if words else ""
    may_be_line = " " in command.strip() and (not arguments or command.split()[0] in _LAUNCHERS)
    return command, words[1:] + arguments, may_be_line and isinstance(given, str) and not reading.is_own


def _stdio(reading: EntryReader, command: str, arguments: list[str]) -> dict[str, Any]:
    if command.lower().removesuffix(".exe") == "cmd" and arguments and arguments[0].lower() == "/c" and arguments[1:]:
        reading.notes.append("“cmd /c” is only needed on Windows and was removed.")
        command, arguments = arguments[1], arguments[2:]
    if secret_arguments(arguments):
        reading.notes.append(_IN_CLEAR)
    if any(text.startswith("~/") for text in (command, *arguments)):
        reading.notes.append("“~” is not expanded: write the absolute path.")
    script = None if reading.is_own else shell_script(command, arguments)
    kept = [
        reading.kept(argument, f"argument {index + 1}")
        if script is None or index < script
        else _REFERENCE.sub("$${", argument)  # it is for the shell, which finds it among the server's variables
        for index, argument in enumerate(arguments)
    ]
    if any(need.secret and need.place.startswith("argument ") for need in reading.needs.values()):
        reading.notes.append(_IN_CLEAR)  # the value that will be entered ends up there
    program = reading.plain(command, "command")
    directory = reading.text("cwd", "workingDirectory")
    if directory and not directory.startswith(("/", "${")):  # relative to the project that an editor has open
        need = reading.need("working directory", "working directory", required=True, printed=directory)
        directory = reading.typed.get(need.key, directory)
    else:
        directory = reading.kept(directory, "working directory")
    return {
        "transport": TransportKind.STDIO,
        "command": program,
        "arguments": kept,
        "working_directory": directory,
    }


def _behind_url(reading: EntryReader, kind: TransportKind | None, url: str, http_url: str) -> dict[str, Any]:
    whole = (url or http_url).strip()
    # References stay in path and query; scheme, host and port must be known here, since secrets are bound to them.
    place = _PLACE.match(whole)
    end = place.end() if place else 0
    columns: dict[str, Any] = {"url": reading.plain(whole[:end], "URL") + reading.kept(whole[end:], "URL")}
    if "@" in columns["url"].partition("?")[0].partition("#")[0]:
        # The URL parser quotes what it cannot parse in its errors, and here that may be a password.
        reading.problems.append("Move the username and password from the URL to a header, which is stored encrypted.")
        columns["url"] = ""
    if kind is not None:
        columns["transport"] = kind
    elif http_url and not url:
        columns["transport"] = TransportKind.STREAMABLE_HTTP
    return columns
