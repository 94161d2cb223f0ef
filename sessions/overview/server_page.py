"""The data for the pages of one server. Everything comes from the database, so the page of a dead server opens as fast
as any other."""

from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet

from servers import access
from servers.definitions import versions
from servers.enums import DefinitionKind
from servers.kit.pages import RowsPage, page_before
from servers.models import Definition, Server
from sessions.calls import visibility
from sessions.calls.operations import OPERATIONS
from sessions.connections.diagnosis import Explanation, explain
from sessions.mcp.core.methods import COMPLETE, TOOLS_CALL
from sessions.models import Call, McpSession
from sessions.overview import rows as queries

PAGE = 50
SHOWN_CHARS = 16 * 1024


@dataclass(frozen=True)
class ServerHeader:
    server: Server
    mcp_session: McpSession | None
    explanation: Explanation | None
    #: number of definitions of each kind, and `changed_at` (see rows.catalog_row)
    counts: dict[str, Any]

    @property
    def topic(self) -> str:
        """The part after the kind in the names of its live topics (see topics.Topic)."""
        if self.server.seen_as and self.mcp_session is not None:
            return f"{self.server.uid}.{self.mcp_session.identity.uid}"
        return str(self.server.uid)


@dataclass(frozen=True)
class ToolEntry:
    """One line of the tool list. `hints`: see `hints()`."""

    name: str
    title: str
    description: str
    hints: list[str] = field(default_factory=list)
    icons: Any = None

    @property
    def key(self) -> str:
        return self.name


def header(server: Server) -> ServerHeader:
    """Three queries: the session of the identity that `server` was read for, and the counts and age of its
    definitions."""
    mcp_session = own_session(server)
    explanation = (
        explain(mcp_session.fault, mcp_session.fault_detail, server) if mcp_session and mcp_session.fault else None
    )
    return ServerHeader(server, mcp_session, explanation, queries.catalog_row(server))


def own_session(server: Server) -> McpSession | None:
    """The session of the identity that `server` was read for."""
    return server.sessions.filter(**server.identity_filter).select_related("identity", "owner").first()


@dataclass(frozen=True)
class Cut:
    """A list that was not read to its end. `kind`: as in DefinitionKind. `what`: a label for people."""

    kind: str
    what: str
    explanation: Explanation


def cuts(session: McpSession | None) -> list[Cut]:
    stored = session.catalog_cuts if session else {}
    return [Cut(kind, f"{DefinitionKind(kind).label.lower()}s", explain(*why)) for kind, why in stored.items()]


def definitions(server: Server, kind: DefinitionKind) -> QuerySet[Definition]:
    return versions.definitions(server, kind).order_by("position", "id")


def beginning(text: str) -> str:
    """The beginning of a text: a server may describe itself in megabytes."""
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text):,} characters in all)"


def hints(tool: dict[str, Any]) -> list[str]:
    """The tool's annotations as words (2025-03-26, ToolAnnotations). Only values that the server sets to true: the
    specification's defaults are not applied."""
    annotations = tool.get("annotations")
    if not isinstance(annotations, dict):
        return []
    read_only = annotations.get("readOnlyHint") is True
    found = ["read-only"] if read_only else []
    if not read_only and annotations.get("destructiveHint") is True:
        found.append("destructive")
    if annotations.get("idempotentHint") is True:
        found.append("idempotent")
    if annotations.get("openWorldHint") is True:
        found.append("open world")
    return found


def tool_entry(definition: Definition) -> ToolEntry:
    tool = versions.body_of(definition)
    return ToolEntry(definition.key, definition.title, definition.description, hints(tool), tool.get("icons"))


def recent_calls(server: Server, tool: str, count: int = 5) -> list[Call]:
    """Calls of the same identity."""
    calls = server.calls.filter(method=TOOLS_CALL, target=tool, **server.identity_filter)
    return list(calls.select_related("server", "arguments", "result", "late_result", "agent")[:count])


#: for the filter of a history; completions, which forms request automatically, are shown only on request
HISTORY_METHODS = [("", "All except completions"), *((method, method) for method in OPERATIONS), ("all", "All methods")]


def history(user: access.User, server: Server, before: int | None, method: str = "") -> RowsPage[Call]:
    calls = server.calls.filter(visibility.visible_q(user)).select_related("user", "agent")
    if method in OPERATIONS:
        calls = calls.filter(method=method)
    elif method != "all":
        calls = calls.exclude(method=COMPLETE)
    return page_before(calls, "id", before, PAGE)


def capability_words(server_side: dict[str, Any], client_side: dict[str, Any]) -> list[dict[str, str]]:
    """Each capability with what it enables, for *Connection info*."""
    return [
        {"side": side, "name": name, "effect": effect}
        for side, declared in (("Server", server_side), ("Client", client_side))
        for name, effect in _declared(declared)
    ]


_EFFECTS = {
    "tools": "List and run tools.",
    "tools.listChanged": "The tool list updates automatically.",
    "resources": "List and read resources and templates.",
    "resources.subscribe": "Subscribe to resource changes.",
    "resources.listChanged": "The resource list updates automatically.",
    "prompts": "List and get prompts.",
    "prompts.listChanged": "The prompt list updates automatically.",
    "logging": "Server messages appear on the Logs tab, where you set their level.",
    "completions": "Suggestions for arguments of prompts and templates.",
    "tasks": "Run requests as tasks and fetch results later.",
    "roots": "The server can request the list of folders to use.",
    "sampling": "The server can request model responses (sampling).",
    "elicitation": "The server can request input from a person.",
    "experimental": "Extensions outside the specification.",
    "extensions": "Extensions of the specification.",
}


def _declared(declared: dict[str, Any]) -> list[tuple[str, str]]:
    found = []
    for name, options in declared.items():
        found.append((name, _EFFECTS.get(name, "Unknown to this version of mcpadmin.")))
        if isinstance(options, dict):
            inner = [key for key, value in options.items() if value is not False and f"{name}.{key}" in _EFFECTS]
            found += [(f"{name}.{key}", _EFFECTS[f"{name}.{key}"]) for key in inner]
    return found
