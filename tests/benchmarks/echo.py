"""The replies of the smallest echo server, on bytes. Two patterns read a call without parsing it, so that the benchmark
measures the client. Standard library only; used by echo_stdio.py, echo_http.py and echo_websocket.py.
"""

import json
import re
from typing import Any

_ID = re.compile(rb'"id":\s?(-?\d+|"[^"]*")')
_TEXT = re.compile(rb'"text":\s?("(?:[^"\\]|\\.)*")')
_CALLED = b'{"jsonrpc":"2.0","id":%b,"result":{%b"content":[{"type":"text","text":%b}]}}'
_INFO = {"name": "echo", "version": "1"}
_TOOLS = [
    {
        "name": "echo",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    }
]


def answer(message: bytes, era: str) -> bytes:
    """The reply to one message, without a line end; b"" for a notification or a response. `era`: legacy or modern."""
    if b'"tools/call"' in message:
        identity, text = _ID.search(message), _TEXT.search(message)
        assert identity is not None
        assert text is not None
        return _CALLED % (identity[1], b'"resultType":"complete",' if era == "modern" else b"", text[1])
    asked = json.loads(message)
    if "method" not in asked or "id" not in asked:
        return b""
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], **_body(asked, era)}).encode()


def _body(asked: dict[str, Any], era: str) -> dict[str, Any]:
    method = asked["method"]
    if era == "modern" and method == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": _INFO}
        return {"result": _complete(result)}
    if era == "legacy" and method == "initialize":
        version = asked["params"]["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": _INFO}}
    if method == "tools/list":
        return {"result": _complete({"tools": _TOOLS}) if era == "modern" else {"tools": _TOOLS}}
    if era == "legacy" and method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}


def _complete(result: dict[str, Any]) -> dict[str, Any]:
    return {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private", **result}
