"""What an import would do: for each server in the file, create, change (field by field), nothing, or refuse and why."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from django.db.models import prefetch_related_objects
from django.utils.text import slugify

from servers import access
from servers.configuration import Registration, ValueInput
from servers.credentials import reference_grants
from servers.enums import TransportKind
from servers.models import Server, ServerValue
from servers.registration.differences import FieldDifference, differences
from servers.registration.importing.document import ImportedDocument
from servers.registration.importing.entries import Entry, faults, parse
from servers.registration.reference_permissions import references_in, same_connection
from servers.registration.values import secrets_to_reenter, stored_values
from servers.validators import secret_arguments

_OF_STDIO = ("command", "arguments", "working_directory")
HIDDEN = "…"


class Plan(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    SAME = "same"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Proposal:
    """`registration`: what would be stored under the server's own name; None if it is refused."""

    index: int
    entry: Entry
    verdict: Plan
    registration: Registration | None = None
    stored: Server | None = None
    differences: list[FieldDifference] = field(default_factory=list)
    reasons: tuple[str, ...] = ()

    @property
    def kept_state(self) -> str:
        return kept_state(self.entry, self.stored) if self.stored and self.verdict != Plan.REFUSE else ""


def plan(user: Any, document: ImportedDocument) -> list[Proposal]:
    entries = [parse(document, name, raw) for name, raw in document.servers]
    stored = list(access.visible_servers(user))
    found = [existing_server(entry.registration, stored) if entry.registration else None for entry in entries]
    prefetch_related_objects([server for server in found if server is not None], "values")
    granted = reference_grants.granted_to(user)
    proposals: list[Proposal] = []
    taken: set[str] = set()
    for index, (entry, server) in enumerate(zip(entries, found, strict=True)):
        proposals.append(_proposal(user, granted, index, entry, server, taken))
        taken.add(document.servers[index][0].strip().casefold())
    return proposals


def _proposal(
    user: Any, granted: Collection[str], index: int, entry: Entry, server: Server | None, taken: set[str]
) -> Proposal:
    if entry.registration is None or entry.problems:
        return Proposal(index, entry, Plan.REFUSE, reasons=entry.problems)
    if entry.name.strip().casefold() in taken:
        return Proposal(index, entry, Plan.REFUSE, reasons=("Another server in this file has the same name.",))
    given = entry.registration if server is None else overwriting(server, entry)
    refusal = _lacking(user, entry.registration.transport, server)
    if not refusal and (server is None or not same_connection(server, given)):
        ungranted = sorted({name for name in references_in(given) if name not in granted})
        refusal = reference_grants.refused(ungranted) if ungranted else ""
    if refusal:
        return Proposal(index, entry, Plan.REFUSE, entry.registration, server, reasons=(refusal,))
    if server is None:
        return Proposal(index, entry, Plan.CREATE, given)
    if reasons := () if entry.unmet({}) else tuple(faults(given)):
        return Proposal(index, entry, Plan.REFUSE, given, server, reasons=reasons)
    found = [_masked(difference) for difference in differences(server, given)]
    return Proposal(index, entry, Plan.CHANGE if found else Plan.SAME, given, server, found)


def existing_server(registration: Registration, stored: Collection[Server]) -> Server | None:
    """The server that this one would replace: one with its slug, with the same name in any case, or with the slug it
    would get."""
    name, slug = registration.name.casefold(), slugify(registration.name)
    rules: list[Callable[[Server], bool]] = [
        lambda server: server.slug == registration.slug,
        lambda server: server.name.casefold() == name,
        lambda server: server.slug == slug,
    ]
    return next((server for rule in rules for server in stored if rule(server)), None)


def _lacking(user: Any, transport: str, server: Server | None) -> str:
    """The missing permission, in words. The verbs check again and record a refusal."""
    for permission in ["change" if server else "add", *(["manage_stdio"] if transport == TransportKind.STDIO else [])]:
        try:
            access.require(user, permission)
        except access.Denied as denied:
            return str(denied)
    return ""


# --- overwriting -------------------------------------------------------------------------------------------------------
def overwriting(server: Server, entry: Entry) -> Registration:
    """The stored registration, overridden by what the file states; headers and variables come from the file only."""
    given = entry.registration
    if given is None:
        raise ValueError("a refused entry is not stored")
    kept = Registration.of_server(server)
    columns = {name: getattr(given, name) for name in _overwritten(kept, entry)}
    rows = stored_values(server)
    merged = replace(kept, **columns, values=[_kept_secret(rows.get(value.key), value) for value in given.values])
    lost = set(secrets_to_reenter(server, merged))
    values = [replace(value, needed=True) if value.name in lost else value for value in merged.values]
    return replace(merged, values=values)


def kept_state(entry: Entry, server: Server) -> str:
    """What an import never changes in a stored server, in words, if the file says otherwise."""
    if server.archived_at is not None:
        return "The stored server is archived. The import does not restore it."
    if server.enabled == entry.enabled:
        return ""
    if server.enabled:
        return "The stored server is enabled. The import does not disable it."
    return "The stored server is disabled. The import does not enable it."


def _overwritten(kept: Registration, entry: Entry) -> set[str]:
    given = entry.registration
    names = set(entry.stated)
    if given is not None and given.transport == TransportKind.STDIO:
        return names | set(_OF_STDIO) | {"transport"}
    same_family = kept.transport != TransportKind.STDIO and _is_socket(kept) == _is_socket(given)
    return names | {"url"} | (set() if same_family else {"transport"})


def _is_socket(registration: Registration | None) -> bool:
    return registration is not None and registration.transport == TransportKind.WEBSOCKET


def _kept_secret(row: ServerValue | None, value: ValueInput) -> ValueInput:
    """Keep a stored secret that the file omits."""
    is_here = row is not None and row.secret and row.sealed is not None
    return replace(value, needed=False) if value.needed and is_here else value


# --- for the page ------------------------------------------------------------------------------------------------------
def _masked(difference: FieldDifference) -> FieldDifference:
    if difference.name != "arguments":
        return difference
    current, yours = (masked_arguments(text.split("\n")) for text in (difference.current, difference.yours))
    return replace(difference, current="\n".join(current), yours="\n".join(yours))


def masked_arguments(arguments: list[str]) -> list[str]:
    secret = secret_arguments(arguments)
    return [HIDDEN if index in secret else argument for index, argument in enumerate(arguments)]
