"""What the page of a server's resources reads: the lists, the chosen resource, and its last content.

Nothing here sends a request to the server: the content shown was stored by a call or a subscription, with its age.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from servers import access
from servers.audit import payloads
from servers.definitions.versions import body_of
from servers.enums import DefinitionKind
from servers.models import Definition, Payload, Server
from sessions.calls.blocks import Block
from sessions.calls.markdown_blocks import with_markdown
from sessions.calls.resource_blocks import contents_of
from sessions.catalog import search
from sessions.catalog.search import Listed
from sessions.enums import CallState
from sessions.mcp.core.methods import RESOURCES_READ
from sessions.models import Call, ResourceVersion, Subscription
from sessions.overview import server_page

#: how many successful reads are searched for one with content
_READS_LOOKED_AT = 5


@dataclass(frozen=True)
class ResourceLists:
    """A URI that is not shown can still be typed."""

    resources: Listed[Definition]
    templates: Listed[Definition]
    subscriptions: Listed[Subscription]

    @property
    def any(self) -> bool:
        return bool(self.resources.rows or self.templates.rows or self.subscriptions.rows)


@dataclass(frozen=True)
class SelectedResource:
    """A resource, listed or not. `uri` is empty while values of its template are missing."""

    uri: str
    definition: Definition | None = None
    template: Definition | None = None
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> Definition | None:
        return self.template or self.definition

    @property
    def known_as(self) -> str:
        """The server's name for it; empty if it is not listed."""
        return (self.shown.title or self.shown.key) if self.shown else ""

    @property
    def subscription_title(self) -> str:
        """A template has one name for all of its resources, so for those the title is empty and the URI is used."""
        return self.definition.title if self.definition else ""

    @property
    def title(self) -> str:
        return self.known_as or self.uri

    @property
    def description(self) -> str:
        return server_page.beginning(self.shown.description) if self.shown else ""

    @property
    def mime(self) -> str:
        value = self.body.get("mimeType")
        return value[:200] if isinstance(value, str) else ""

    @property
    def size(self) -> int | None:
        """As declared by the server."""
        value = self.body.get("size")
        return value if type(value) is int and 0 <= value < 2**63 else None

    @property
    def annotations(self) -> list[tuple[str, str]]:
        found = self.body.get("annotations")
        hints = found if isinstance(found, dict) else {}
        audience = hints.get("audience")
        words = [str(who) for who in audience[:10]] if isinstance(audience, list) else []
        entries = [
            ("For", ", ".join(words)),
            ("Priority", hints.get("priority")),
            ("Changed", hints.get("lastModified")),
        ]
        return [
            (name, str(value)[:100]) for name, value in entries if isinstance(value, str | int | float) and value != ""
        ]


@dataclass(frozen=True)
class StoredContent:
    """The last stored content of a resource. `call` or `version` is its source. `blocks` is empty if it
    cannot be read."""

    at: datetime
    size: int
    blocks: list[Block]
    call: Call | None = None
    version: ResourceVersion | None = None


#: query parameters of the page that say where the shown parts of its lists begin
RESOURCES_FROM, TEMPLATES_FROM = "from", "templates_from"


def lists(server: Server, find: str, uri: str, template: str, starts: Mapping[str, int | None]) -> ResourceLists:
    """The part of each list that `starts` names, or that contains the selection (`uri`, `template`), or the first."""

    def part(kind: DefinitionKind, key: str, parameter: str) -> Listed[Definition]:
        return search.part_of(server, kind, find, key, starts.get(parameter), parameter)

    return ResourceLists(
        part(DefinitionKind.RESOURCE, uri, RESOURCES_FROM),
        part(DefinitionKind.RESOURCE_TEMPLATE, template, TEMPLATES_FROM),
        search.watched(server, find),
    )


def choose_uri(server: Server, uri: str) -> SelectedResource:
    listed = _listed(server, DefinitionKind.RESOURCE, uri)
    return SelectedResource(uri, listed, body=body_of(listed) if listed else {})


def choose_template(server: Server, template: str, uri: str) -> SelectedResource | None:
    """None for a template that the server does not list."""
    listed = _listed(server, DefinitionKind.RESOURCE_TEMPLATE, template)
    return None if listed is None else SelectedResource(uri, template=listed, body=body_of(listed))


def _listed(server: Server, kind: DefinitionKind, key: str) -> Definition | None:
    return server_page.definitions(server, kind).filter(key=key).first()


def subscription_of(server: Server, uri: str) -> Subscription | None:
    return server.subscriptions.filter(uri=uri, **server.identity_filter).first() if uri else None


# --- what was read ---------------------------------------------------------------------------------------------------
def latest_read(server: Server, uri: str) -> Call | None:
    """The newest read, whatever its result."""
    reads = server.calls.filter(method=RESOURCES_READ, target=uri, **server.identity_filter)
    return reads.select_related("server", "session__owner", "arguments", "result", "late_result").first()


def what_was_read(user: access.User, server: Server, uri: str) -> tuple[StoredContent | None, Call | None]:
    """The stored content, and the newest read if it adds something: it is running, or ended after the content was
    stored."""
    found, latest = kept(user, server, uri), latest_read(server, uri)
    if found is None or latest is None:
        return found, latest
    older = latest.finished_at is not None and latest.finished_at <= found.at
    return found, None if older or latest == found.call else latest


def kept(user: access.User, server: Server, uri: str) -> StoredContent | None:
    """The newer of the last successful read and the newest subscription version that `user` may see."""
    found = [one for one in (_from_ledger(user, server, uri), _from_subscription(user, server, uri)) if one]
    return max(found, key=lambda one: one.at, default=None)


def _from_ledger(user: access.User, server: Server, uri: str) -> StoredContent | None:
    reads = server.calls.filter(method=RESOURCES_READ, target=uri, state=CallState.SUCCEEDED, **server.identity_filter)
    if not access.may_read_payloads(user):
        reads = reads.filter(user_id=user.pk)
    reads = older = reads.filter(result__erased_at=None).select_related("result")
    for _ in range(_READS_LOOKED_AT):
        call = older.first()
        if call is None or call.result is None or call.finished_at is None:
            return None
        value = _value(call.result)
        if not (isinstance(value, dict) and value.get("resultType") == "input_required"):
            return StoredContent(call.finished_at, call.result.size, _blocks(value, uri), call=call)
        older = reads.filter(pk__lt=call.pk)  # an agent was asked for input: nothing was read
    return None


def _from_subscription(user: access.User, server: Server, uri: str) -> StoredContent | None:
    if not access.may_read_payloads(user) and not server.seen_as:  # a personal one has only its user's results
        return None
    whose = {f"subscription__{name}": value for name, value in server.identity_filter.items()}
    versions = ResourceVersion.objects.filter(subscription__server=server, subscription__uri=uri, **whose)
    version = versions.select_related("contents", "subscription").first()
    if version is None or version.contents.erased_at is not None:
        return None
    of = version.subscription
    read_at = None if of.read_fault else of.last_read_at  # the last read failed: when this was last found is unknown
    at = read_at or version.at  # a read with equal content creates no version
    return StoredContent(at, version.size, _blocks(_value(version.contents), uri), version=version)


def _value(payload: Payload) -> Any:
    try:
        return json.loads(payloads.read(payload) or "")
    except (ValueError, RecursionError):
        return None


def _blocks(value: Any, uri: str) -> list[Block]:
    """A call stores the whole result, a version only the list of contents."""
    return with_markdown(contents_of(value.get("contents") if isinstance(value, dict) else value, uri))
