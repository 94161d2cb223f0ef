"""Receives signals from `servers` and the accounts, and forwards them: to pages as hints, to workers as commands.

The app's ready() imports this module once.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from allauth.account import signals as account
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.auth.signals import user_logged_out
from django.db.models import QuerySet
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete
from django.dispatch import receiver

from servers.audit.writer import after_batches
from servers.commit_hooks import after_commit
from servers.enums import AuditAction
from servers.models import AgentToken, Payload, Server
from servers.signals import (
    account_deleting,
    agent_policy_changed,
    audit_recorded,
    authorization_asked,
    belongings_asked,
    bundle_changed,
    client_document_asked,
    draft_changed,
    grants_deleting,
    identity_ended,
    job_changed,
    machines_asked,
    payload_erased,
    rows_removed,
    server_changed,
    server_deleting,
    sign_ins_ended,
    sink_asked,
    work_handed_over,
)
from sessions import hints
from sessions.agents import follows
from sessions.approvals import ending as approvals
from sessions.calls import result_files
from sessions.connections import commands
from sessions.explorer import exporting, fulltext, indexing, suggestions
from sessions.housekeeping import changed_registrations, erased, people
from sessions.live import tickets
from sessions.models import AgentSession, Call, SavedCall, Worker
from sessions.saved_calls import saving
from sessions.subscriptions import versions

User = get_user_model()
after_batches(hints.send_inline)
suggestions.register()
exporting.register()
_SIGN_IN_ONLY = frozenset({"last_login"})


@receiver(audit_recorded)
def _on_audit_appended(seqs: range, **_: Any) -> None:
    if seqs:
        hints.publish(hints.AUDIT, seqs[-1], "event", deferred=True)


@receiver(server_changed)
def _on_server_changed(
    server_uid: UUID, change: AuditAction, reconnect: bool = False, identity_id: int | None = None, **_: Any
) -> None:
    changed_registrations.registration_changed(server_uid, change, reconnect=reconnect, identity_id=identity_id)


@receiver(identity_ended)
def _on_identity_ended(identity_id: int, **_: Any) -> int:
    return changed_registrations.identity_ended(identity_id)


@receiver(server_deleting)
def _long_history_of_server(server: Server, **_: Any) -> Callable[[], None] | None:
    return changed_registrations.long_history(server)


@receiver(account_deleting)
def _long_history_of_user(user: Any, **_: Any) -> Callable[[], None] | None:
    return changed_registrations.long_history_of_user(user)


@receiver(grants_deleting)
def _long_history_of_grants(grants: QuerySet[AgentToken], **_: Any) -> Callable[[], None] | None:
    return changed_registrations.long_history_of_grants(grants)


@receiver(pre_delete, sender=Server)
def _on_server_deleting(instance: Server, **_: Any) -> None:
    changed_registrations.before_delete(instance)


@receiver(draft_changed)
def _on_draft_changed(draft_uid: UUID, **_: Any) -> None:
    hints.draft_changed(draft_uid)


@receiver(bundle_changed)
def _on_bundle_changed(bundle_uid: UUID, **_: Any) -> None:
    hints.bundle_changed(bundle_uid)


@receiver(job_changed)
def _on_job_changed(**_: Any) -> None:
    hints.jobs_changed()


@receiver(authorization_asked)
def _on_authorization_waiting(authorization_uid: UUID, label: str, **_: Any) -> None:
    commands.ask_worker("authorize", authorization_uid, label)


@receiver(rows_removed, sender=Call)
def _on_calls_removed(ids: list[int], **_: Any) -> None:
    fulltext.forget("calls", ids)


@receiver(payload_erased)
def _on_payload_erased(payload_ids: list[int], everywhere: bool, **_: Any) -> None:
    result_files.recent.forget(payload_ids)
    indexing.calls_erased(erased.forget_copies(payload_ids, everywhere=everywhere))
    if everywhere:
        saving.erased(payload_ids)
        versions.erased(payload_ids)


@receiver(post_delete, sender=SavedCall)
def _on_saved_call_deleted(instance: SavedCall, **_: Any) -> None:
    """Also sent when its server or its owner is deleted."""
    Payload.objects.filter(pk=instance.arguments_id).delete()


@receiver(pre_delete, sender=AgentSession)
def _on_agent_session_deleting(instance: AgentSession, **_: Any) -> None:
    """Also sent when its token, client or person is deleted. Without the row, nothing would end what only it
    followed."""
    follows.forget_session(instance)


@receiver(client_document_asked)
def _on_client_document_waiting(client_uid: UUID, **_: Any) -> bool:
    return commands.ask_worker("client", client_uid)


@receiver(sink_asked)
def _on_sink_waiting(sink_uid: UUID, **_: Any) -> None:
    commands.ask_worker("sink", sink_uid)


# --- sockets of users whose sign-in or permissions changed ------------------------------------------------------------
@receiver(user_logged_out)
def _on_signed_out(user: Any, request: Any, **_: Any) -> None:
    """Django sends this signal before it deletes the session's row, so the hint names the session: a check of the row
    would still find it now."""
    key = getattr(getattr(request, "session", None), "session_key", None)
    if user is not None and key:
        hints.user_changed(user.pk, ended=tickets.fingerprint(key))


@receiver(account.password_changed)
@receiver(account.password_set)
@receiver(account.password_reset)
def _on_password_changed(user: Any, **_: Any) -> None:
    _recheck_permissions(user.pk)


@receiver(post_save, sender=User)
def _on_user_saved(instance: Any, created: bool, update_fields: Any = None, **_: Any) -> None:
    if not created and not (update_fields and set(update_fields) <= _SIGN_IN_ONLY):
        _recheck_permissions(instance.pk)
        if not instance.is_active:
            after_commit(changed_registrations.user_left, instance.pk)
            after_commit(people.cancel_waiting_calls, instance.pk)


@receiver(pre_delete, sender=User)
def _on_user_deleting(instance: Any, **_: Any) -> None:
    changed_registrations.before_user_delete(instance.pk)


@receiver(post_delete, sender=User)
def _on_user_deleted(instance: Any, **_: Any) -> None:
    _recheck_permissions(instance.pk)


@receiver(post_save, sender=AgentToken)
def _on_agent_token_saved(instance: AgentToken, created: bool, **_: Any) -> None:
    if not created:
        _recheck_permissions(instance.user_id)
        if instance.revoked_at is not None:
            after_commit(approvals.void_of_token, instance.pk)


@receiver(agent_policy_changed)
def _on_agent_policy_changed(**_: Any) -> None:
    hints.policies_changed()


@receiver(m2m_changed, sender=User.groups.through)
@receiver(m2m_changed, sender=User.user_permissions.through)
def _on_user_permissions_changed(instance: Any, action: str, reverse: bool, **_: Any) -> None:
    if action.startswith("post_"):
        _recheck_permissions(None if reverse else instance.pk)


@receiver(m2m_changed, sender=Group.permissions.through)
def _on_group_permissions_changed(action: str, **_: Any) -> None:
    if action.startswith("post_"):
        _recheck_permissions(None)


@receiver(post_delete, sender=Group)
def _on_group_deleted(**_: Any) -> None:
    """Django removes its members and permissions without a signal for either."""
    _recheck_permissions(None)


@receiver(sign_ins_ended)
def _on_sign_ins_ended(user_id: int, keys: list[str], **_: Any) -> None:
    for key in keys:
        hints.user_changed(user_id, ended=tickets.fingerprint(key))


@receiver(belongings_asked)
def _belongings(user: Any, servers: Any, **_: Any) -> Any:
    return people.belongings(user, servers)


@receiver(work_handed_over)
def _work_handed_over(user: Any, to: Any, **_: Any) -> dict[str, int]:
    return people.hand_over(user, to)


@receiver(machines_asked)
def _machines(**_: Any) -> set[str]:
    return set(Worker.objects.living().values_list("machine", flat=True))


def _recheck_permissions(user_id: int | None) -> None:
    after_commit(hints.user_changed, user_id)
