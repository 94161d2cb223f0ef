"""The limits on stored data: days and bytes of each kind. Without a limit, everything is kept."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servers import permissions
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.enums import AuditAction
from sessions.enums import StoredKind
from sessions.models import RetentionLimit
from sessions.retention.kinds import stored_kinds

PERMISSION = "administer"


@dataclass(frozen=True)
class Limit:
    days: int | None = None
    bytes: int | None = None


def limits() -> dict[StoredKind, Limit]:
    rows = {row.kind: Limit(row.days, row.bytes) for row in RetentionLimit.objects.all()}
    return {kind: rows.get(kind, Limit()) for kind in stored_kinds()}


class Conflict(Exception):
    """Another administrator was faster: the values on the page are out of date."""

    def __init__(self) -> None:
        super().__init__("The limits changed after you opened this page. Check them and save again.")


def mark() -> str:
    """Changes whenever a limit does: a form that shows all of them sends it back."""
    shown = sorted((kind.value, limit.days, limit.bytes) for kind, limit in limits().items())
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:16]


def change(actor: Actor, user: Any, wanted: Mapping[StoredKind, Limit], seen: str | None = None) -> bool:
    """False if nothing changed. `seen` is the `mark` of the submitted page. Raises access.Denied (recorded) and
    Conflict."""
    permissions.require(user, actor, PERMISSION, subject="retention")
    with audited(actor) as trail:
        before = limits()
        changed = {kind: limit for kind, limit in wanted.items() if before[kind] != limit}
        if not changed:
            return False
        if seen is not None and seen != mark():
            raise Conflict
        changes = {
            kind.label: {"before": in_words(before[kind]), "after": in_words(limit)} for kind, limit in changed.items()
        }
        for kind, limit in changed.items():
            RetentionLimit.objects.update_or_create(kind=kind, defaults=vars(limit))
        trail.note(AuditAction.RETENTION_CHANGE, None, "retention", {"changes": changes})
    return True


def in_words(limit: Limit) -> str:
    parts = [f"{limit.days} days"] if limit.days is not None else []
    parts += [f"{limit.bytes} bytes"] if limit.bytes is not None else []
    return " and ".join(parts) or "everything"
