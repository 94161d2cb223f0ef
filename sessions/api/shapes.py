"""What the API takes and gives. The OpenAPI document is made of these."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from ninja import Schema
from pydantic import AfterValidator, ConfigDict, Field

from sessions.enums import CallState


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("It holds a NUL character.")
    return text


#: what is looked up: no text of a database holds a NUL. In queries mcpadmin.errors refuses it
Text = Annotated[str, AfterValidator(_without_nul)]
Cursor = Annotated[str | None, Field(description="Give it as `cursor` to get the next page; null on the last one.")]


class Strict(Schema):
    """Of a request: an unknown member is a mistake."""

    model_config = ConfigDict(extra="forbid")


# --- servers -----------------------------------------------------------------------------------------------------------
class ServerOut(Schema):
    slug: str = Field(description="Short name: the server in all other paths, and of its MCP endpoint.")
    name: str
    kind: Literal["server", "bundle"]
    description: str = Field(description="Empty for a bundle.")
    enabled: bool
    state: str | None = Field(description="Of its session, as this token's person uses it; null for a bundle.")
    mcp_url: str = Field(description="Address of its MCP endpoint.")


class ServerPage(Schema):
    items: list[ServerOut]
    next: Cursor


# --- calls -------------------------------------------------------------------------------------------------------------
class CallIn(Strict):
    tool: Text = Field(
        min_length=1, max_length=2_000, description="As the server names it; for a bundle, its own name."
    )
    arguments: dict[str, Any] = Field(default_factory=dict)


class CallError(Schema):
    code: int | None = Field(description="Of JSON-RPC, if the server answered with an error.")
    message: str
    data: Any = None


class CallProgress(Schema):
    progress: float
    total: float | None
    message: str


class CallRow(Schema):
    id: UUID
    server: str = Field(description="Name of the server.")
    target: str = Field(description="The tool, resource or prompt.")
    kind: str = Field(description="tool, resource, prompt or completion.")
    user: str
    way: str
    identity: str
    state: str
    outcome: str = Field(
        description="As in the query language: ok, error, cancelled, unknown, not_sent, denied, running."
    )
    requested_at: datetime
    duration_ms: int | None
    bytes: int | None = Field(description="Of arguments and result.")


class CallPage(Schema):
    items: list[CallRow]
    next: Cursor
    searched_to: datetime | None = Field(
        description="The search ended here at its limit of work, with fewer rows than asked for; `next` continues it."
    )


class CallOut(Schema):
    id: UUID
    server: str | None = Field(description="Short name; null if the server was deleted.")
    server_name: str
    target: str
    method: str
    user: str
    program: str
    way: str
    identity: str
    state: CallState
    final: bool
    may_have_run: bool = Field(
        description="It failed or its outcome is unknown, and it may have had an effect: check before you repeat it."
    )
    requested_at: datetime
    sent_at: datetime | None
    finished_at: datetime | None
    duration_ms: int | None
    detail: str
    error: CallError | None
    progress: CallProgress | None
    readable: bool = Field(description="Whether this token may read arguments and result.")
    arguments: Any = Field(None, description="null if they may not be read or were erased.")
    result: Any = Field(None, description="As the server wrote it, in MCP's own form.")


# --- subscriptions -----------------------------------------------------------------------------------------------------
class SubscriptionIn(Strict):
    server: Text = Field(description="Short name of the server.")
    uri: Text = Field(min_length=1, max_length=2_048)
    title: str = Field("", max_length=300)


class SubscriptionOut(Schema):
    id: UUID
    server: str
    uri: str
    title: str
    active: bool
    state: str
    reason: str
    created_at: datetime
    created_by: str
    changed_at: datetime | None
    newest_version: int = Field(description="0: none was read yet.")
    read_detail: str = Field(description="Why the last read failed; empty if it did not.")


class SubscriptionPage(Schema):
    items: list[SubscriptionOut]
    next: Cursor


class VersionRow(Schema):
    number: int
    at: datetime
    cause: str
    events: int
    digest: str = Field(description="SHA-256 of the contents as canonical JSON (RFC 8785).")
    size: int
    mime_type: str


class VersionPage(Schema):
    items: list[VersionRow]
    next: Cursor


class VersionOut(VersionRow):
    contents: list[Any] | None = Field(description="As MCP's resources/read gives them; null if they were erased.")


# --- audit events ------------------------------------------------------------------------------------------------------
class AuditEventOut(Schema):
    seq: int
    at: datetime
    action: str
    outcome: str
    subject: str
    actor: str
    way: str
    ip: str
    server: str
    identity: str
    call: UUID | None
    details: dict[str, Any]
    digests: dict[str, str]
    context: dict[str, Any]
    hash: str
    prev: str


class AuditEventPage(Schema):
    items: list[AuditEventOut]
    next: str = Field(description="Give it as `cursor`: also on the last page, to continue when there are new events.")
    more: bool


class ProblemOut(Schema):
    """Problem details (RFC 9457). Further members say more, such as `errors` and `retryAfterMs`."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
