"""A recorded message as a command line or a program that sends it again. Masked values become variables. The output
contains no secrets, because the record contains none."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pprint import pformat
from typing import Any, Final

from servers.enums import TransportKind
from servers.models import Server
from servers.registration import exporting
from sessions.mcp.core import methods
from sessions.models import WireMessage
from sessions.wire.reading import Headers

_MASK: Final = re.compile(r"\[redacted\]|%5Bredacted%5D", re.IGNORECASE)
#: as in the texts of an exported registration
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
#: written by the client itself, or valid for one connection only
_OF_THE_CONNECTION: Final = frozenset(
    {"host", "connection", "content-length", "accept-encoding", "transfer-encoding", "user-agent"}
)
_CALLS: Final = {
    methods.TOOLS_CALL: ("call_tool", "name"),
    "prompts/get": ("get_prompt", "name"),
    "resources/read": ("read_resource", "uri"),
    "tools/list": ("list_tools", ""),
    "prompts/list": ("list_prompts", ""),
    "resources/list": ("list_resources", ""),
    "resources/templates/list": ("list_resource_templates", ""),
    "ping": ("send_ping", ""),
}


def as_json(text: str) -> str:
    """The same value in ASCII, so that a server's hidden characters have no effect where it is pasted."""
    return json.dumps(json.loads(text), separators=(",", ":"))


def curl(url: str, verb: str, headers: Headers | None, text: str) -> str:
    lines = [f"curl -N -X {shlex.quote(verb)} {_unmasked(url, 'URL_PARAMETER')}"]
    for name, value in headers.sent if headers else ():
        if name.lower() not in _OF_THE_CONNECTION and name != "…":
            lines.append(f"-H {_unmasked(f'{name}: {value}', _variable(name))}")
    if text:
        lines.append(f"--data-raw {shlex.quote(as_json(text))}")
    return " \\\n  ".join(lines)


def pipe(server: Server, text: str, opening: Sequence[Mapping[str, Any]] = ()) -> str:
    """For a process: its messages, one per line. Its stdin stays open for a moment, so that it can answer."""
    entry = entry_of(server)
    message = as_json(text)
    lines = [json.dumps(one, separators=(",", ":")) for one in opening] + [message]
    command = " ".join(
        [f"{name}={_shell(value)}" for name, value in entry.get("env", {}).items()]
        + [_shell(part) for part in (entry["command"], *entry["args"])]
    )
    words = " ".join(shlex.quote(line) for line in lines)
    return f"(printf '%s\\n' {words}; sleep 5) | {command}"


def opening_of(method: str, era: str) -> list[dict[str, Any]]:
    """The messages that a legacy server expects before any other."""
    if era == "modern" or method == "initialize":
        return []
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "shell", "version": "1"}}
    return [
        {"jsonrpc": "2.0", "id": "opening", "method": "initialize", "params": params},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]


def entry_of(server: Server) -> dict[str, Any]:
    """Its registration for other clients; secrets are references to variables."""
    entries: dict[str, dict[str, Any]] = json.loads(exporting.export([server], own=False))["mcpServers"]
    return next(iter(entries.values()))


def python(server: Server, message: WireMessage, text: str) -> str:
    """A program that uses the official SDK. Empty for a method that the SDK has no function for."""
    if message.method not in _CALLS:
        return ""
    function, key = _CALLS[message.method]
    params = json.loads(text).get("params")
    params = params if isinstance(params, dict) else {}
    given = [ascii(params.get(key))] if key else []
    if isinstance(params.get("arguments"), dict):
        given.append(_literal(params["arguments"]))
    opened, imported, streams = _python_transport(server)
    return "\n".join(
        [
            "import asyncio",
            "import os",
            "",
            "from mcp import ClientSession" + (", StdioServerParameters" if "stdio" in imported else ""),
            imported,
            "",
            "",
            "async def main():",
            f"    async with {opened} as {streams}:",
            "        async with ClientSession(read, write) as session:",
            "            await session.initialize()",
            f"            print(await session.{function}({', '.join(given)}))",
            "",
            "",
            "asyncio.run(main())",
            "",
        ]
    )


def _python_transport(server: Server) -> tuple[str, str, str]:
    entry = entry_of(server)
    if server.transport == TransportKind.STDIO:
        parts = [f"command={_python_text(entry['command'])}", f"args=[{', '.join(map(_python_text, entry['args']))}]"]
        if entry.get("env"):
            parts.append(f"env={{{_python_items(entry['env'])}}}")
        opened = f"stdio_client(StdioServerParameters({', '.join(parts)}))"
        return opened, "from mcp.client.stdio import stdio_client", "(read, write)"
    url = _python_text(entry["url"])
    if server.transport == TransportKind.WEBSOCKET:
        return f"websocket_client({url})", "from mcp.client.websocket import websocket_client", "(read, write)"
    headers = f", headers={{{_python_items(entry['headers'])}}}" if entry.get("headers") else ""
    if server.transport == TransportKind.HTTP_SSE:
        return f"sse_client({url}{headers})", "from mcp.client.sse import sse_client", "(read, write)"
    opened = f"streamablehttp_client({url}{headers})"
    return opened, "from mcp.client.streamable_http import streamablehttp_client", "(read, write, _)"


def _python_items(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name!a}: {_python_text(value)}" for name, value in values.items())


def _python_text(text: str) -> str:
    parts = _VARIABLE.split(text)  # text, name, text, …
    found = [f'os.environ["{part}"]' if index % 2 else ascii(part) for index, part in enumerate(parts)]
    return " + ".join(part for part in found if part != "''") or "''"


def _literal(value: Any) -> str:
    """A Python literal in ASCII."""
    text = pformat(value, width=100, sort_dicts=False)
    return text if text.isascii() else ascii(value)


def _variable(name: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_") or "SECRET"


def _unmasked(text: str, variable: str) -> str:
    """Quoted for a shell, with the variable in place of each mask. A value that a server chose, like a session id, is
    literal text: a `${NAME}` in it would otherwise send that variable to the server."""
    parts = _MASK.split(_printable(text))
    return f'"${{{variable}}}"'.join(shlex.quote(part) if part or len(parts) == 1 else "" for part in parts)


def _shell(text: str) -> str:
    """A registration as a shell command: quoted, except for references to variables."""
    parts = _VARIABLE.split(_printable(text))  # text, name, text, …
    return "".join(
        f'"${{{part}}}"' if index % 2 else shlex.quote(part) if part or len(parts) == 1 else ""
        for index, part in enumerate(parts)
    )


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
