"""Requests of exports, by people and by schedules, and what their owner may do with the file."""

from datetime import datetime
from typing import Any

from django.db import transaction

from servers import access, limits, permissions
from servers.audit.acts import Trail, audited
from servers.audit.record import SYSTEM, Actor, Event
from servers.enums import AuditAction, AuditOutcome, ExportFormat, JobKind
from servers.exporting import files, selection
from servers.jobs import requesting
from servers.models import BackgroundJob, Export, ExportSchedule

#: each occupies a thread of a worker
OPEN = limits.number("open_exports")
_SUBJECT = "audit log"


class TooMany(Exception):
    def __init__(self) -> None:
        words = "Other exports are waiting or running."
        super().__init__(f"{words} {limits.stated('open_exports')} Try again when one of them has finished.")


def request(
    user: access.User,
    actor: Actor,
    export_format: ExportFormat,
    *,
    query: str = "",
    payloads: bool = False,
) -> Export:
    """Raises Denied, TooMany, QueryNotUnderstood."""
    _require(user, actor, payloads=payloads)
    selection.events_of(user, query)
    export = Export(owner=user, owner_name=actor.name, format=export_format, query=query, payloads=payloads)
    with audited(actor) as trail:
        job = _open(export, trail)
    requesting.publish(job)
    return export


def request_scheduled(schedule: ExportSchedule, next_at: datetime | None = None) -> Export | None:
    """Export the events since the previous one. Not in a transaction. None while another one of it, or too many, are
    open.

    `next_at`: when it is due again, once this export is there. None also if it was paused, or another scheduler was faster.

    Under a lock of its row: of two requests at the same moment, one makes an export, and none begins at an old cursor.
    """
    try:
        with audited(SYSTEM) as trail:
            current = ExportSchedule.objects.select_for_update().filter(pk=schedule.pk).first()
            if current is None or is_open(current):
                return None
            if next_at is not None:
                due = ExportSchedule.objects.filter(pk=schedule.pk, next_at=schedule.next_at, paused_at=None)
                if not due.update(next_at=next_at):
                    return None
            export = Export(
                schedule=current,
                owner_name=current.owner_name,
                format=current.format,
                payloads=current.payloads,
                after_seq=current.cursor,
            )
            job = _open(export, trail)
    except TooMany:
        return None
    requesting.publish(job)
    return export


def _open(export: Export, trail: Trail) -> BackgroundJob:
    """Runs in the trail's transaction; its job is published after it. Raises TooMany."""
    if open_jobs() >= OPEN:
        raise TooMany
    requester = {"requested_by": export.owner, "requested_name": trail.actor.name} if export.schedule is None else {}
    export.job = job = requesting.create(JobKind.EXPORT, **requester)
    export.save()
    trail.note(AuditAction.EXPORT_REQUEST, None, _SUBJECT, facts(export))
    return job


def is_open(schedule: ExportSchedule) -> bool:
    return Export.objects.filter(schedule=schedule, job__isnull=False, job__finished_at=None).exists()


def open_jobs() -> int:
    return BackgroundJob.objects.filter(kind=JobKind.EXPORT, finished_at=None).count()


def facts(export: Export) -> dict[str, Any]:
    """What the audit log records about an export."""
    found: dict[str, Any] = {"export": str(export.uid), "format": str(export.format), "payloads": export.payloads}
    if export.query:
        found["query"] = export.query
    if export.schedule is not None:
        found |= {"schedule": export.schedule.name, "after": export.after_seq}
    return found


def downloadable(user: access.User, actor: Actor, uid: Any) -> Export | None:
    """The export if it belongs to this user and has a file. Raises Denied for an owner who has lost the permission."""
    export = Export.objects.filter(uid=uid, owner=user).first() if user.pk else None
    if export is None or export.expires_at is None:
        return None
    _require(user, actor, payloads=export.payloads)
    return export


def note_download(actor: Actor, export: Export, found: int) -> None:
    """`found`: the size of the file in bytes. A file whose size differs from what was written is not sent: the download
    failed."""
    details = facts(export) | {"sha256": export.digest, "bytes": export.size}
    with audited(actor) as trail:
        if found == export.size:
            trail.note(AuditAction.EXPORT_DOWNLOAD, None, _SUBJECT, details)
        else:
            details["found_bytes"] = found
            event = Event(
                AuditAction.EXPORT_DOWNLOAD, AuditOutcome.FAILED, actor, None, subject=_SUBJECT, details=details
            )
            trail.add(event)


def delete(user: access.User, actor: Actor, uid: Any) -> str:
    """Only for its owner; a running job notices at its next batch. Returns “deleted” or “cancelled”, empty if there is
    no such export."""
    export = Export.objects.filter(uid=uid, owner=user).select_related("job").first()
    if export is None:
        return ""
    is_open = export.job is not None and export.job.open and export.finished_at is None
    with audited(actor) as trail:
        if export.job is not None and export.job.open:
            # the worker loses it, like an attempt that another worker took over
            BackgroundJob.objects.filter(pk=export.job.pk, finished_at=None).delete()
        if export.delete()[0]:
            trail.note(AuditAction.EXPORT_DELETE, None, _SUBJECT, facts(export))
        transaction.on_commit(lambda: files.remove(export))
    return "cancelled" if is_open else "deleted"


def _require(user: access.User, actor: Actor, *, payloads: bool) -> None:
    permissions.require(user, actor, "view_auditevent", subject=_SUBJECT)
    if payloads:
        permissions.require(user, actor, "view_payload", subject=_SUBJECT)
