"""What is kept: days and bytes of each kind. Without a limit everything is kept."""

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


def change(actor: Actor, user: Any, wanted: Mapping[StoredKind, Limit]) -> bool:
    """False when nothing changed. Raises access.Denied (recorded)."""
    permissions.require(user, actor, PERMISSION, subject="retention")
    with audited(actor) as trail:
        before = limits()
        changes = {
            kind.label: {"before": in_words(before[kind]), "after": in_words(limit)}
            for kind, limit in wanted.items()
            if before[kind] != limit
        }
        if not changes:
            return False
        for kind, limit in wanted.items():
            RetentionLimit.objects.update_or_create(kind=kind, defaults=vars(limit))
        trail.note(AuditAction.RETENTION_CHANGE, None, "retention", {"changes": changes})
    return True


def in_words(limit: Limit) -> str:
    parts = [f"{limit.days} days"] if limit.days is not None else []
    parts += [f"{limit.bytes} bytes"] if limit.bytes is not None else []
    return " and ".join(parts) or "everything"
