"""*Use it from …*: what a person pastes into each client to use an endpoint.

Sources: the clients' own documentation of their configuration files, and that of mcp-remote for Claude Desktop, whose
file starts commands only.
"""

import json
from dataclasses import dataclass
from typing import Any

VERSION = "2026-07-28"


@dataclass(frozen=True)
class Configuration:
    """`where`: what to do with `text`."""

    key: str
    client: str
    where: str
    text: str


def configurations(slug: str, url: str, token: str) -> list[Configuration]:
    header = {"Authorization": f"Bearer {token}"}
    bridge = ["-y", "mcp-remote", url, "--header", "Authorization:${MCPADMIN_AUTHORIZATION}"]
    if url.startswith("http:"):
        bridge.append("--allow-http")
    desktop = {"command": "npx", "args": bridge, "env": {"MCPADMIN_AUTHORIZATION": f"Bearer {token}"}}
    return [
        Configuration(
            "claude-code",
            "Claude Code",
            "Run this command.",
            f'claude mcp add --transport http {slug} {url} --header "Authorization: Bearer {token}"',
        ),
        Configuration(
            "claude-desktop",
            "Claude Desktop",
            "Add it to claude_desktop_config.json (Settings, Developer, Edit Config). Needs Node.js.",
            _json({"mcpServers": {slug: desktop}}),
        ),
        Configuration(
            "cursor",
            "Cursor",
            "Add it to ~/.cursor/mcp.json, or to .cursor/mcp.json in a project.",
            _json({"mcpServers": {slug: {"url": url, "headers": header}}}),
        ),
        Configuration(
            "vscode",
            "VS Code",
            "Add it to .vscode/mcp.json in a project, or to the user's mcp.json.",
            _json({"servers": {slug: {"type": "http", "url": url, "headers": header}}}),
        ),
        Configuration(
            "windsurf",
            "Windsurf",
            "Add it to ~/.codeium/windsurf/mcp_config.json.",
            _json({"mcpServers": {slug: {"serverUrl": url, "headers": header}}}),
        ),
        Configuration(
            "codex",
            "Codex",
            "Add it to ~/.codex/config.toml.",
            f'[mcp_servers.{slug}]\nurl = "{url}"\nhttp_headers = {{ Authorization = "Bearer {token}" }}',
        ),
        Configuration("curl", "curl", "Lists the tools.", _curl(url, token)),
    ]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2)


def _curl(url: str, token: str) -> str:
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "curl", "version": "1"},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
    lines = [
        f"curl -sS {url}",
        f"-H 'Authorization: Bearer {token}'",
        "-H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream'",
        f"-H 'MCP-Protocol-Version: {VERSION}' -H 'Mcp-Method: tools/list'",
        f"-d '{body}'",
    ]
    return " \\\n  ".join(lines)
