"""Approval of a changed definition: a person has seen the change, and agents may call it again."""

from typing import Any

from servers import access, permissions
from servers.audit.acts import audited
from servers.audit.record import Actor, ServerRef
from servers.commit_hooks import after_commit
from servers.enums import AuditAction, DefinitionChange
from servers.models import Definition, Server
from sessions import hints
from sessions.catalog import definition_versions
from sessions.catalog.definition_versions import Version


def approved_version(definition: Definition) -> Version | None:
    """The newest version with the digest that agents could call; None if nothing is waiting."""
    if not definition.approved_digest:
        return None
    rows = definition.versions.filter(digest=definition.approved_digest).exclude(change=DefinitionChange.REMOVED)
    row = rows.order_by("-id").first()
    return None if row is None else definition_versions.numbered(definition, row)


def may_approve(user: Any, server: Server) -> bool:
    return access.may_control(user, server)


def approve(actor: Actor, user: Any, server: Server, definition: Definition, digest: str) -> bool:
    """`digest`: the digest of the version that the page showed. False if another version is current. `server` is as
    `access.with_identity_of` returned it. Raises access.Denied (recorded).
    """
    try:
        access.require_control(user, server)
    except access.Denied as denied:
        permissions.record_denial(actor, denied, definition.key[:300])
        raise
    with audited(actor) as trail:
        row = Definition.objects.select_for_update().get(pk=definition.pk)
        if row.digest != digest or not row.approved_digest:
            return False
        details = {"kind": row.kind, "before": row.approved_digest, "after": row.digest}
        row.approved_digest = ""
        row.save(update_fields=["approved_digest"])
        trail.note(AuditAction.DEFINITION_APPROVE, ServerRef.of(server), row.key[:300], details)
        after_commit(hints.session_changed, server.uid, kind="catalog")
    return True


def waiting(user: Any) -> list[Definition]:
    """Changed definitions of servers that this user sees, under the identity that they use. For the page *Agents*."""
    rows = Definition.objects.exclude(approved_digest="").filter(
        removed_at=None, identity__in=access.identities_of(user)
    )
    rows = rows.filter(server__in=access.visible_servers(user).filter(archived_at=None))
    return list(rows.select_related("server").order_by("server__name", "kind", "position")[:100])
