"""Another MCP client, independent of mcpadmin: it makes a server announce that a resource changed."""

import json
from typing import Any

import httpx

HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "outsider", "version": "1"}}


def tell_of_a_change(url: str, uri: str) -> None:
    """Call the tool `touch` after the legacy handshake, which servers of both eras understand."""
    with httpx.Client(headers=HEADERS, trust_env=False, timeout=30) as http:
        greeting = _send(http, url, 1, "initialize", HELLO)
        http.headers["Mcp-Session-Id"] = greeting.headers["mcp-session-id"]
        _send(http, url, None, "notifications/initialized", {})
        answer = _send(http, url, 2, "tools/call", {"name": "touch", "arguments": {"uri": uri}})
        assert f"touched {uri}" in answer.text, answer.text
        http.delete(url)


def _send(http: httpx.Client, url: str, number: int | None, method: str, params: dict[str, Any]) -> httpx.Response:
    message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
    body = json.dumps(message)
    return http.post(url, content=body, headers={"Content-Type": "application/json"}).raise_for_status()
