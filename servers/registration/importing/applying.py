"""Carries out what was decided about a preview: each server through the verbs of `registration`, in its own
transaction."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import DatabaseError

from servers import access
from servers.audit.record import Actor
from servers.configuration import Registration
from servers.crypto import SealError
from servers.enums import CredentialKind
from servers.models import Server
from servers.registration import registering
from servers.registration.importing.document import ImportedDocument
from servers.registration.importing.entries import Entry, parse, words
from servers.registration.importing.planning import Plan, Proposal, existing_server, kept_state, overwriting
from servers.registration.needed_credentials import others, used_by


class Choice(StrEnum):
    CREATE = "create"
    OVERWRITE = "overwrite"
    RENAME = "rename"
    SKIP = "skip"


@dataclass(frozen=True)
class Decision:
    """`version` and `uid`: of the stored server as the preview showed it; `typed`: values by the key of their need.
    `outdated`: the choice is no longer possible."""

    choice: Choice
    name: str = ""
    version: int = 0
    typed: Mapping[str, str] = field(default_factory=dict, repr=False)
    uid: UUID | None = None
    outdated: bool = False


@dataclass(frozen=True)
class ImportOutcome:
    """The result for one server. Safe to show and to store: it contains no value from the file."""

    name: str
    result: str  # created, changed, unchanged, skipped, refused
    words: str = ""
    slug: str = ""
    needed: list[str] = field(default_factory=list)

    @property
    def is_stored(self) -> bool:
        return self.result in ("created", "changed")

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def choices(proposal: Proposal) -> list[Choice]:
    """The possible decisions, the default first: nothing stored changes without an explicit choice."""
    if proposal.entry.alternative and proposal.verdict == Plan.CREATE:
        return [Choice.SKIP, Choice.CREATE, Choice.RENAME]
    return {
        Plan.CREATE: [Choice.CREATE, Choice.RENAME, Choice.SKIP],
        Plan.CHANGE: [Choice.SKIP, Choice.OVERWRITE, Choice.RENAME],
        Plan.SAME: [Choice.SKIP, Choice.RENAME],
        Plan.REFUSE: [Choice.SKIP],
    }[proposal.verdict]


def is_incomplete(proposal: Proposal, decision: Decision) -> bool:
    """Whether a value is missing that the chosen server needs to be stored."""
    return decision.choice != Choice.SKIP and bool(proposal.entry.unmet(decision.typed))


def apply(
    actor: Actor, user: Any, document: ImportedDocument, proposals: list[Proposal], decisions: Mapping[int, Decision]
) -> list[ImportOutcome]:
    """`proposals` must be current; a server that has changed since the preview is rejected by its version."""
    known = {server.pk: server for server in access.visible_servers(user)}
    return [
        _outcome(actor, user, document, proposal, decisions.get(proposal.index, Decision(Choice.SKIP)), known)
        for proposal in proposals
    ]


def _outcome(
    actor: Actor,
    user: Any,
    document: ImportedDocument,
    proposal: Proposal,
    decision: Decision,
    known: dict[int, Server],
) -> ImportOutcome:
    """`known`: all servers by key, including those that this import has stored so far."""
    name = proposal.entry.name
    if proposal.verdict == Plan.REFUSE:
        return ImportOutcome(name, "refused", " ".join(proposal.reasons))
    if decision.outdated:
        return ImportOutcome(name, "refused", "The stored servers have changed since the preview. Choose again.")
    if decision.choice == Choice.SKIP:
        return ImportOutcome(name, "unchanged" if proposal.verdict == Plan.SAME else "skipped")
    entry = parse(document, *document.servers[proposal.index], decision.typed)
    if missing := entry.unmet(decision.typed):
        return ImportOutcome(
            name, "refused", f"Enter the value of {', '.join(need.printed or need.label for need in missing)}."
        )
    given = entry.registration
    if given is None or entry.problems:
        return ImportOutcome(name, "refused", " ".join(entry.problems))
    stored = proposal.stored if decision.choice == Choice.OVERWRITE else None
    if stored is not None and decision.uid not in (None, stored.uid):
        reason = f"The server that the preview showed was renamed or deleted, and {stored.name} has taken its place."
        return ImportOutcome(name, "refused", f"{reason} Check the preview again.")
    if decision.choice == Choice.RENAME:
        given = replace(given, name=decision.name.strip(), slug="")
    return _store(actor, user, entry, given, stored, decision.version, known)


def _store(
    actor: Actor,
    user: Any,
    entry: Entry,
    given: Registration,
    stored: Server | None,
    version: int,
    known: dict[int, Server],
) -> ImportOutcome:
    """`stored`: the server to overwrite; None: register a new one."""
    name = entry.name
    try:
        if stored is not None:
            given = overwriting(stored, entry)
            server = registering.change(actor, user, stored, given, version, entry.package)
        elif not given.slug and (other := existing_server(given, known.values())) is not None:
            return ImportOutcome(name, "refused", f"{other.name} already uses this name. Choose another one.")
        else:
            enabled = entry.enabled and not _waits(entry, given)
            server = registering.register(actor, user, given, enabled=enabled, package=entry.package)
        known[server.pk] = server
        return _saved(entry, server, given, "created" if stored is None else "changed")
    except ValidationError as problem:
        return ImportOutcome(name, "refused", " ".join(words(problem)))
    except registering.Conflict as found:
        return ImportOutcome(name, "refused", f"{found} Check the preview again.")
    except (access.Denied, SealError) as problem:
        return ImportOutcome(name, "refused", str(problem))
    except DatabaseError:
        return ImportOutcome(
            name, "refused", "The database is not available. Nothing was saved for this server. Try again."
        )


def _needed(given: Registration) -> list[str]:
    return [value.name for value in given.used_values() if value.needed]


def _waits(entry: Entry, given: Registration) -> bool:
    """Whether a value is missing that it needs to connect; if a sign-in is needed, the server itself asks for it."""
    return bool(_needed(given) or [one for one in entry.credentials if one.kind != CredentialKind.OAUTH])


def _saved(entry: Entry, server: Server, given: Registration, result: str) -> ImportOutcome:
    kept = {one.words for one in others(used_by(server))}
    needed = [*_needed(given), *(one.words for one in entry.credentials if one.words not in kept)]
    said = ""
    if result == "changed":
        missing = "Enter the missing values in its settings before it can connect." if needed else ""
        said = f"{missing} {kept_state(entry, server)}".strip()
    elif _waits(entry, given):
        said = "Imported disabled. Enter the missing values in its settings, then enable it."
    elif not entry.enabled and result == "created":
        said = "Disabled in the file."
    return ImportOutcome(entry.name, result, said, server.slug, needed)
