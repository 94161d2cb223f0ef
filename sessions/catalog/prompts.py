"""The data of a server's prompts page, and which servers can be asked for suggestions."""

from dataclasses import dataclass

from servers.definitions.versions import body_of
from servers.enums import DefinitionKind
from servers.models import Definition, Server
from sessions.calls.operations import completion_target
from sessions.calls.plain_arguments import FIELD, prompt_fields
from sessions.enums import SessionState
from sessions.mcp.core.capabilities import declares
from sessions.mcp.core.methods import PROMPTS_GET
from sessions.mcp.core.versions import REVISIONS
from sessions.models import Call, McpSession
from sessions.overview import server_page

_RECENT = 5


@dataclass(frozen=True)
class Field:
    """One argument of a prompt, or one variable of a template. `many`: its value is a list, one item per line."""

    name: str
    value: str = ""
    title: str = ""
    description: str = ""
    required: bool = False
    many: bool = False
    error: str = ""

    @property
    def input_name(self) -> str:
        return f"{FIELD}{self.name}"


@dataclass(frozen=True)
class Prompt:
    definition: Definition
    fields: list[Field]

    @property
    def title(self) -> str:
        return self.definition.title or self.definition.key

    @property
    def description(self) -> str:
        return server_page.beginning(self.definition.description)


def prompt(definition: Definition, values: dict[str, str], errors: dict[str, str]) -> Prompt:
    """`values` and `errors` are keyed by argument name."""
    described = prompt_fields(body_of(definition))
    fields = [
        Field(
            name=found["name"],
            value=values.get(found["name"], ""),
            title=_text(found.get("title"), 300),
            description=_text(found.get("description"), 2_000),
            required=found.get("required") is True,
            error=errors.get(found["name"], ""),
        )
        for found in described
    ]
    return Prompt(definition, fields)


def _text(value: object, most: int) -> str:
    return value[:most] if isinstance(value, str) else ""


def recent(server: Server, name: str) -> list[Call]:
    calls = server.calls.filter(method=PROMPTS_GET, target=name, **server.identity_filter)
    return list(calls.select_related("server", "session__owner", "arguments", "result", "late_result")[:_RECENT])


def suggests(session: McpSession | None, kind: DefinitionKind, key: str) -> str:
    """The target of a completion request, if the connected server can be asked for one; otherwise ""."""
    revision = REVISIONS.get(session.revision) if session else None
    if session is None or revision is None or session.state != SessionState.READY:
        return ""
    offered = declares(session.server_capabilities, "completions") or not revision.completions_declared
    return completion_target(kind, key) if offered else ""
