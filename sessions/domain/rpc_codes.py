"""The names of JSON-RPC error codes, for people.

Sources: JSON-RPC 2.0 section 5.1; MCP 2026-07-28 (-32020 to -32022) and 2025-11-25 (-32002, -32042).
"""

_NAMES = {
    -32700: "Parse error",
    -32600: "Invalid request",
    -32601: "Method not found",
    -32602: "Invalid params",
    -32603: "Internal error",
    -32002: "Resource not found",
    -32020: "Header mismatch",
    -32021: "Missing client capability",
    -32022: "Unsupported protocol version",
    -32042: "URL elicitation required",
}
_COMMON_USE = {-32000: "connection closed or server error", -32001: "request timed out or session not found"}


def name_of(code: int) -> str:
    if code in _NAMES:
        return _NAMES[code]
    if -32099 <= code <= -32000:
        use = _COMMON_USE.get(code)
        return f"Server error, commonly {use}" if use else "Server error, meaning chosen by the server"
    if -32768 <= code <= -32100:
        return "Reserved by JSON-RPC"
    return "The server's own code"
