"""The lists of an endpoint, from the rows of the catalogue: an agent's list never causes a request to the server."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.core import signing
from django.db.models import QuerySet

from servers.agents.policies import KIND_OF
from servers.enums import DefinitionKind
from servers.models import Definition
from sessions.agents.endpoints import Entry
from sessions.agents.judging import policies_of
from sessions.catalog import reading
from sessions.mcp.core import methods
from sessions.mcp.core.headers import BadAnnotation, Mirrored, mirrored_arguments
from sessions.mcp.core.versions import Era
from sessions.mcp.server import answers
from sessions.mcp.server.refusals import invalid_params

PAGE: Final = 250
TTL_MS: Final = 60_000
_SALT: Final = "mcpadmin.agents.cursor"
KINDS: Final[Mapping[str, DefinitionKind]] = {
    methods.TOOLS_LIST: DefinitionKind.TOOL,
    methods.RESOURCES_LIST: DefinitionKind.RESOURCE,
    methods.TEMPLATES_LIST: DefinitionKind.RESOURCE_TEMPLATE,
    methods.PROMPTS_LIST: DefinitionKind.PROMPT,
}
#: what `list_changed` is told of -> the lists that it covers
CHANGED: Final[Mapping[str, tuple[DefinitionKind, ...]]] = {
    "tools": (DefinitionKind.TOOL,),
    "resources": (DefinitionKind.RESOURCE, DefinitionKind.RESOURCE_TEMPLATE),
    "prompts": (DefinitionKind.PROMPT,),
}


def was_read(entry: Entry, method: str) -> bool:
    """Whether the list was ever read: before that, empty would be a lie."""
    session = entry.endpoint.session
    return session is not None and reading.was_read(session.catalog_counts, KINDS[method])


def problem(entry: Entry, method: str) -> str:
    """Why the list could not be read; empty if it could, or was not tried yet."""
    session = entry.endpoint.session
    note = session.catalog_counts.get(KINDS[method].value) if session is not None else None
    return str(note.get("problem") or "") if isinstance(note, dict) else ""


def page(entry: Entry, method: str, params: Mapping[str, Any], era: Era) -> str:
    """A page as JSON text. Raises Refusal for a cursor that is not ours, or of a list that changed since."""
    kind = KINDS[method]
    rows = list(_offered(entry, kind).values_list("key", "digest", "body"))
    shown = _shown(entry)
    rows = [row for row in rows if shown(kind, row[0])]
    generation = _digest(rows)
    start = _start(entry, method, generation, params.get("cursor"))
    items = [_item(body, era) for _, _, body in rows[start : start + PAGE]]
    more = start + PAGE < len(rows)
    cursor = _cursor(entry, method, generation, start + PAGE) if more else ""
    return answers.page(method, items, cursor, era, TTL_MS if entry.endpoint.ready else 0)


def _offered(entry: Entry, kind: DefinitionKind) -> QuerySet[Definition]:
    server = entry.endpoint.server
    return Definition.objects.filter(
        server_id=server.pk, kind=kind, removed_at=None, approved_digest="", **entry.endpoint.identity
    ).order_by("position", "pk")


def _shown(entry: Entry) -> Callable[[DefinitionKind, str], bool]:
    """Whether a list names a definition: what may never be used only costs a model its attention."""
    known, principal = policies_of(entry), entry.principal
    filters = known.deny_anything

    def shown(kind: DefinitionKind, key: str) -> bool:
        if kind == DefinitionKind.TOOL and not principal.may_use(key):
            return False
        return not filters or not known.denies(KIND_OF[kind], key)

    return shown


def _digest(rows: list[Any]) -> str:
    return hashlib.sha256(repr([row[:2] for row in rows]).encode()).hexdigest()[:16]


def _item(body: str, era: Era) -> str:
    """As the server wrote it. `execution` is left out: it offers tasks, which this endpoint does not."""
    if '"execution"' not in body:
        return body
    value = json.loads(body)
    return body if value.pop("execution", None) is None else json.dumps(value, separators=(",", ":"))


def _cursor(entry: Entry, method: str, generation: str, offset: int) -> str:
    return signing.dumps([entry.endpoint.server.pk, method, generation, offset], salt=_SALT)


def _start(entry: Entry, method: str, generation: str, cursor: Any) -> int:
    if cursor is None:
        return 0
    try:
        server, listed, before, offset = signing.loads(str(cursor), salt=_SALT)
    except signing.BadSignature as problem:
        raise invalid_params("This cursor was not issued here.") from problem
    if (server, listed) != (entry.endpoint.server.pk, method):
        raise invalid_params("This cursor belongs to another list.")
    if before != generation:
        raise invalid_params("The list has changed. Request it again without a cursor.")
    return int(offset)


def fingerprints(entry: Entry) -> dict[str, str]:
    """Of what this principal may see of each list, to find out which one changed. One query."""
    server, found = entry.endpoint.server, {}
    rows = Definition.objects.filter(
        server_id=server.pk, removed_at=None, approved_digest="", **entry.endpoint.identity
    )
    known = list(rows.order_by("kind", "position", "pk").values_list("kind", "key", "digest"))
    shown = _shown(entry)
    for word, kinds in CHANGED.items():
        mine = [(key, digest) for kind, key, digest in known if kind in kinds and shown(DefinitionKind(kind), key)]
        found[word] = _digest(mine)
    return found


def mirrored(entry: Entry, tool: str) -> tuple[Mirrored, ...]:
    """The arguments of a tool that headers must repeat. Only reads the row of a tool that has such."""
    rows = _offered(entry, DefinitionKind.TOOL).filter(key=tool, body__contains="x-mcp-header")
    body = rows.values_list("body", flat=True).first()
    if body is None:
        return ()
    try:
        return mirrored_arguments(json.loads(body).get("inputSchema"))
    except BadAnnotation:
        return ()
