"""What the pages of one server read. Everything comes from the database: a dead server's page opens as fast as a live one's."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet

from servers import access
from servers.domain import catalog
from servers.enums import DefinitionKind
from servers.models import Definition, Server
from sessions.domain import call_rows, queries
from sessions.domain.diagnosis import Explanation, explain
from sessions.domain.operations import OPERATIONS
from sessions.models import Call, McpSession
from sessions.protocol.methods import COMPLETE, TOOLS_CALL

PAGE = 50
SHOWN_CHARS = 16 * 1024


@dataclass(frozen=True)
class ServerHeader:
    server: Server
    mcp_session: McpSession | None
    explanation: Explanation | None
    #: how many of each kind, and `changed_at` (see queries.catalog_row)
    counts: dict[str, Any]

    @property
    def topic(self) -> str:
        """What follows the kind in the names of its live topics (see topics.Topic)."""
        own = self.server.seen_as and self.mcp_session
        return f"{self.server.uid}.{self.mcp_session.identity.uid}" if own else str(self.server.uid)


@dataclass(frozen=True)
class ToolEntry:
    """One line of the tool list. `hints` are the annotations that the server set to true or, for destructive, implied."""

    name: str
    title: str
    description: str
    hints: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.name


@dataclass(frozen=True)
class ToolGroup:
    title: str
    entries: list[ToolEntry]


def header(server: Server) -> ServerHeader:
    """Three queries: the session of whom `server` was read for, and the counts and age of what it offers them."""
    mcp_session = server.sessions.filter(**server.seen_through).select_related("identity", "owner").first()
    explanation = (
        explain(mcp_session.fault, mcp_session.fault_detail, server) if mcp_session and mcp_session.fault else None
    )
    return ServerHeader(server, mcp_session, explanation, queries.catalog_row(server))


@dataclass(frozen=True)
class Cut:
    """A list that was not read to its end. `kind` as in DefinitionKind, `what` as people read it."""

    kind: str
    what: str
    explanation: Explanation


def cuts(session: McpSession | None) -> list[Cut]:
    stored = session.catalog_cuts if session else {}
    return [Cut(kind, f"{DefinitionKind(kind).label.lower()}s", explain(*why)) for kind, why in stored.items()]


def definitions(server: Server, kind: DefinitionKind) -> QuerySet[Definition]:
    return catalog.definitions(server, kind).order_by("position", "id")


def body(definition: Definition) -> dict[str, Any]:
    """The server's own JSON. A hostile one may hold anything below the top level, which is always an object."""
    value = json.loads(definition.body)
    return value if isinstance(value, dict) else {}


def shown(text: str) -> str:
    """A server may describe itself in megabytes; a page shows the beginning."""
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text):,} characters in all)"


def hints(tool: dict[str, Any]) -> list[str]:
    """The tool's annotations as words, by the defaults of the specification (2025-03-26, ToolAnnotations)."""
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
    return ToolEntry(definition.key, definition.title, definition.description, hints(body(definition)))


def tool_groups(tools: Iterable[Definition]) -> list[ToolGroup]:
    """In their order, grouped by what they say they do."""
    groups: dict[str, list[ToolEntry]] = {"Read": [], "Write": [], "Destructive": []}
    for definition in tools:
        entry = tool_entry(definition)
        group = "Read" if "read-only" in entry.hints else "Destructive" if "destructive" in entry.hints else "Write"
        groups[group].append(entry)
    present = {title: tools for title, tools in groups.items() if tools}
    if set(present) == {"Write"}:
        return [ToolGroup("Tools", present["Write"])]
    return [ToolGroup(title, tools) for title, tools in present.items()]


def recent_calls(server: Server, tool: str, count: int = 5) -> list[Call]:
    """Of the same identity."""
    calls = server.calls.filter(method=TOOLS_CALL, target=tool, **server.seen_through)
    return list(calls.select_related("server", "arguments", "result", "late_result")[:count])


@dataclass(frozen=True)
class Page:
    rows: list[Any]
    newer: int | None
    older: int | None


def _keyset(rows: QuerySet[Any], key: str, before: int | None) -> Page:
    """Newest first; `older` is the cursor of the next page."""
    if before is not None:
        rows = rows.filter(**{f"{key}__lt": before})
    found = list(rows.order_by(f"-{key}")[: PAGE + 1])
    older = getattr(found[PAGE - 1], key) if len(found) > PAGE else None
    return Page(found[:PAGE], None if before is None else before, older)


#: of the filter of a history; what a form asked for by itself is left out unless it is asked for
HISTORY_METHODS = [("", "All but completions"), *((method, method) for method in OPERATIONS), ("all", "All methods")]


def history(user: access.User, server: Server, before: int | None, method: str = "") -> Page:
    calls = server.calls.filter(call_rows.seen(user)).select_related("user")
    if method in OPERATIONS:
        calls = calls.filter(method=method)
    elif method != "all":
        calls = calls.exclude(method=COMPLETE)
    return _keyset(calls, "id", before)


def capability_words(server_side: dict[str, Any], client_side: dict[str, Any]) -> list[dict[str, str]]:
    """Each capability with what it switches on, for *Connection info*."""
    return [
        {"side": side, "name": name, "effect": effect}
        for side, declared in (("Server", server_side), ("Client", client_side))
        for name, effect in _declared(declared)
    ]


_EFFECTS = {
    "tools": "Tools can be listed and run.",
    "tools.listChanged": "The tool list refreshes by itself.",
    "resources": "Resources and templates can be listed and read.",
    "resources.subscribe": "The server tells when a resource changes.",
    "resources.listChanged": "The resource list refreshes by itself.",
    "prompts": "Prompts can be listed and used.",
    "prompts.listChanged": "The prompt list refreshes by itself.",
    "logging": "Server messages arrive on the Logs tab; their level can be set.",
    "completions": "Arguments of prompts and templates can be completed.",
    "tasks": "Long calls can run as tasks.",
    "roots": "The server may ask which folders it may use.",
    "sampling": "The server may ask for a model's answer.",
    "elicitation": "The server may ask a person for input.",
    "experimental": "Extensions outside the specification.",
    "extensions": "Extensions of the specification.",
}


def _declared(declared: dict[str, Any]) -> list[tuple[str, str]]:
    found = []
    for name, options in declared.items():
        found.append((name, _EFFECTS.get(name, "Not known to this version of mcpadmin.")))
        if isinstance(options, dict):
            inner = [key for key, value in options.items() if value is not False and f"{name}.{key}" in _EFFECTS]
            found += [(f"{name}.{key}", _EFFECTS[f"{name}.{key}"]) for key in inner]
    return found
