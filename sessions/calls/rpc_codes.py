"""The names of JSON-RPC error codes, for people. No code may depend on them.

A code has the meaning of the session's revision. Codes left to implementations have several meanings in practice;
their names say "commonly". docs/error-codes.md is generated from this table.
"""

from dataclasses import dataclass
from typing import Final

_SPEC: Final = "https://modelcontextprotocol.io/specification/"
_JSON_RPC: Final = "https://www.jsonrpc.org/specification#error_object"


@dataclass(frozen=True, slots=True)
class Meaning:
    """`methods`: prefixes of the methods whose errors can have this meaning; empty means any."""

    words: str
    url: str
    methods: tuple[str, ...] = ()

    def meant_by(self, method: str) -> bool:
        """An unknown method ("") matches every meaning."""
        return not (method and self.methods) or method.startswith(self.methods)


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A code with one meaning: in every revision, or from `since` to `until` (both included)."""

    code: int
    name: str
    source: Meaning
    since: str = ""
    until: str = ""

    def holds_in(self, revision: str) -> bool:
        """Revisions are dates, so string order is date order. An unknown revision ("") matches."""
        if not revision:
            return True
        return self.since <= revision and (not self.until or revision <= self.until)


@dataclass(frozen=True, slots=True)
class Common:
    """A code that is free for any use, and the meanings seen in practice."""

    code: int
    uses: tuple[Meaning, ...]


def _json_rpc(code: int, name: str) -> ErrorCode:
    return ErrorCode(code, name, Meaning("JSON-RPC 2.0, section 5.1", _JSON_RPC))


def _modern(code: int, name: str) -> ErrorCode:
    source = Meaning("2026-07-28, Base protocol / Error codes", _SPEC + "2026-07-28/basic/index#error-codes")
    return ErrorCode(code, name, source, since="2026-07-28")


DEFINED: Final = (
    _json_rpc(-32700, "Parse error"),
    _json_rpc(-32600, "Invalid request"),
    _json_rpc(-32601, "Method not found"),
    _json_rpc(-32602, "Invalid params"),
    _json_rpc(-32603, "Internal error"),
    ErrorCode(
        -32002,
        "Resource not found",
        Meaning(
            "2025-11-25, Resources / Error handling",
            _SPEC + "2025-11-25/server/resources#error-handling",
            ("resources/",),
        ),
        until="2025-11-25",
    ),
    _modern(-32020, "Header mismatch"),
    _modern(-32021, "Missing client capability"),
    _modern(-32022, "Unsupported protocol version"),
    ErrorCode(
        -32042,
        "URL elicitation required",
        Meaning("2025-11-25, Elicitation / Error handling", _SPEC + "2025-11-25/client/elicitation#error-handling"),
        since="2025-11-25",
        until="2025-11-25",
    ),
)

_TS_SDK = "https://github.com/modelcontextprotocol/typescript-sdk/blob/"
_TS_TYPES = _TS_SDK + "b51f06c09c66a09c8ac49251d0b363961cc05e56/src/types.ts"
_TS_HTTP = _TS_SDK + "21b58641cf28ed5331847d9937a2f3e1b3ce6abe/src/server/streamableHttp.ts"
_TURUL = "https://docs.rs/turul-http-mcp-server/0.3.21/turul_http_mcp_server/middleware/error/error_codes/index.html"
_TURBO = "https://docs.rs/turbomcp-protocol/3.0.2/turbomcp_protocol/error_codes/index.html"
_LSP = "https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/specification/#errorCodes"
#: tools too: they may read resources
_ON_RESOURCES = ("resources/", "completion/", "tools/")
_DRAFT = "https://github.com/modelcontextprotocol/modelcontextprotocol/pull/2907"

COMMON: Final = (
    Common(
        -32000,
        (
            Meaning("connection closed", _TS_TYPES),
            Meaning("tool failed", "https://github.com/Th0rgal/sandboxed.sh/pull/470"),
            Meaning(
                "rate limit",
                "https://glama.ai/mcp/servers/@pshempel/mcp-time-server-node/blob/"
                "259726a6beceef3a44dde4dc154f65fa20dac3bb/docs/verified-behaviors/rate-limiting-mcp.md",
            ),
        ),
    ),
    Common(
        -32001,
        (
            Meaning("request timed out", _TS_TYPES),
            Meaning("session not found", _TS_HTTP),
            Meaning("unauthorized", _TURUL),
            Meaning(
                "resource or tool not found",
                "https://github.com/PrefectHQ/fastmcp/issues/3038",
                ("resources/", "completion/", "tools/"),
            ),
            Meaning("header mismatch (drafts of 2026-07-28)", _DRAFT),
        ),
    ),
    Common(
        -32002,
        (
            Meaning("resource not found", _SPEC + "2026-07-28/server/resources#error-handling", _ON_RESOURCES),
            Meaning("permission denied", _TURUL),
            Meaning("tool failed", _TURBO, ("tools/",)),
            Meaning("server not initialized", _LSP),
        ),
    ),
    Common(
        -32003,
        (
            Meaning("rate limit", _TURUL),
            Meaning("prompt not found", _TURBO, ("prompts/", "completion/")),
            Meaning("missing client capability (drafts of 2026-07-28)", _DRAFT),
        ),
    ),
    Common(
        -32004,
        (
            Meaning("resource not found", _TURBO, _ON_RESOURCES),
            Meaning("unsupported protocol version (drafts of 2026-07-28)", _DRAFT),
        ),
    ),
)

_BY_CODE: Final = {defined.code: defined for defined in DEFINED}
_USES: Final = {common.code: common.uses for common in COMMON}


def name_of(code: int, revision: str = "", method: str = "") -> str:
    """The name of a code in an answer to `method`, under the session's revision ("" if unknown). A code with several
    meanings gets all possible ones."""
    defined = _BY_CODE.get(code)
    uses = [use.words for use in _USES.get(code, ()) if use.meant_by(method)]
    if defined is not None and defined.holds_in(revision) and defined.source.meant_by(method):
        others = [words for words in uses if words != defined.name.lower()]
        return f"{defined.name} (some servers mean {_one_of(others)})" if others else defined.name
    if uses:
        return f"Server error, commonly {_one_of(uses)}"
    if defined is not None:
        return f"Server error, not in this revision ({defined.name} in {_span(defined)})"
    if -32099 <= code <= -32000:
        return "Server error, meaning chosen by the server"
    if -32768 <= code <= -32100:
        return "Reserved by JSON-RPC"
    return "The server's own code"


def _one_of(words: list[str]) -> str:
    return ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else words[0]


def _span(defined: ErrorCode) -> str:
    if defined.since == defined.until:
        return defined.since
    return f"{defined.since} and later" if defined.since else f"{defined.until} and earlier"
