"""What the API accepts and returns. The OpenAPI document is generated from these classes."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from ninja import Schema
from pydantic import AfterValidator, ConfigDict, Field

from sessions.enums import CallState


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("It contains a NUL character.")
    return text


#: text that is looked up: database text cannot contain NUL. In query strings, mcpadmin.errors rejects it
Text = Annotated[str, AfterValidator(_without_nul)]
Cursor = Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class Strict(Schema):
    """The base class of requests: an unknown member is an error."""

    model_config = ConfigDict(extra="forbid")


# --- servers -----------------------------------------------------------------------------------------------------------
class ServerOut(Schema):
    slug: str = Field(description="Short name, used in all other paths and in the URL of its MCP endpoint.")
    name: str
    kind: Literal["server", "bundle"]
    description: str = Field(description="Empty for a bundle.")
    enabled: bool
    state: str | None = Field(description="State of the session that the token's owner uses; null for a bundle.")
    mcp_url: str = Field(description="URL of its MCP endpoint.")


class ServerPage(Schema):
    items: list[ServerOut]
    next: Cursor


# --- calls -------------------------------------------------------------------------------------------------------------
class CallIn(Strict):
    tool: Text = Field(
        min_length=1,
        max_length=2_000,
        description="Name of the tool on the server; for a bundle, its name in the bundle.",
    )
    arguments: dict[str, Any] = Field(default_factory=dict)


class CallError(Schema):
    code: int | None = Field(description="JSON-RPC error code, if the server answered with an error.")
    message: str = Field(description="Empty if this token may not read the result.")
    data: Any = Field(None, description="null if this token may not read the result.")


class CallProgress(Schema):
    progress: float
    total: float | None
    message: str = Field(description="Empty if this token may not read the result.")


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
    bytes: int | None = Field(description="Size of the arguments and the result.")


class CallPage(Schema):
    items: list[CallRow]
    next: Cursor
    searched_to: datetime | None = Field(
        description="If set, the search reached its work limit at this time, with fewer rows than requested; `next` continues it."
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
        description="The call failed or its outcome is unknown, but it may have had an effect: check before you repeat it."
    )
    requested_at: datetime
    sent_at: datetime | None
    finished_at: datetime | None
    duration_ms: int | None
    detail: str = Field(
        description="Why the call failed or was not sent. Includes what the server said, if this token may read the result."
    )
    error: CallError | None
    progress: CallProgress | None
    readable: bool = Field(description="Whether this token may read the arguments and the result.")
    arguments: Any = Field(None, description="null if this token may not read them or they were erased.")
    result: Any = Field(None, description="The MCP result, as the server sent it.")


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
    newest_version: int = Field(description="0 if no version has been read yet.")
    read_detail: str = Field(description="Why the last read failed; empty if it succeeded.")


class SubscriptionPage(Schema):
    items: list[SubscriptionOut]
    next: Cursor


class VersionRow(Schema):
    number: int
    at: datetime
    cause: str
    events: int
    digest: str | None = Field(
        description="SHA-256 of the contents as canonical JSON (RFC 8785); null if they were erased, or if the token's "
        "owner may not read arguments and results."
    )
    size: int
    mime_type: str


class VersionPage(Schema):
    items: list[VersionRow]
    next: Cursor


class VersionOut(VersionRow):
    contents: list[Any] | None = Field(
        description="As in the result of MCP's resources/read; null if they were erased."
    )


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
    next: str = Field(
        description="Pass it as `cursor` to continue; also set on the last page, for events that are added later."
    )
    more: bool


class ProblemOut(Schema):
    """Problem details (RFC 9457). Further members say more, such as `errors` and `retryAfterMs`."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
