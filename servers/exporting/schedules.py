"""Exports on a schedule: add, change, pause, delete, and run those that are due. Each export contains the events since
the previous one, so together they are the whole log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError
from django.db.models import Q
from django.utils import timezone

from servers import access, crypto, instance, permissions
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.enums import AuditAction, ExportFormat, ExportTarget, Interval
from servers.exporting import requesting
from servers.models import Export, ExportSchedule
from servers.secret import Secret
from servers.validators import origin

TABLE: Final = ExportSchedule._meta.db_table
PERMISSION: Final = "administer"
#: tolerance between two machines
CLOCKS_DIFFER: Final = timedelta(minutes=1)


class NameTaken(Exception):
    pass


class SecretNeeded(Exception):
    """For another store or access key, the secret key must be entered again."""


class OnHold(Exception):
    """A held copy of an installation would export to the original's archive. The message is for a page."""

    def __init__(self) -> None:
        super().__init__("This instance is on hold. Scheduled exports run once an administrator releases it.")


@dataclass(frozen=True)
class ScheduleSettings:
    """The settings for a directory or an S3-compatible store. Without a `secret_key`, the stored one stays."""

    name: str
    format: ExportFormat
    payloads: bool
    interval: Interval
    target: ExportTarget
    directory: str = ""
    endpoint: str = ""
    region: str = ""
    bucket: str = ""
    prefix: str = ""
    access_key: str = ""
    secret_key: Secret = field(default_factory=lambda: Secret(""))


_FIELDS = ("name", "format", "payloads", "interval", "target", "directory", "endpoint", "region", "bucket", "prefix", "access_key")  # fmt: skip


def create(user: access.User, actor: Actor, given: ScheduleSettings) -> ExportSchedule:
    """The first export is due at once and starts at the beginning of the log. Raises Denied, NameTaken,
    SecretNeeded."""
    permissions.require(user, actor, PERMISSION, subject=given.name)
    schedule = ExportSchedule(owner=user, owner_name=actor.name, next_at=timezone.now())
    _set(schedule, given)
    try:
        with audited(actor) as trail:
            schedule.save()
            trail.note(AuditAction.SCHEDULE_CREATE, None, schedule.name, facts(schedule))
    except IntegrityError:
        raise NameTaken from None
    return schedule


def change(user: access.User, actor: Actor, schedule: ExportSchedule, given: ScheduleSettings) -> None:
    """Its exports run with the permissions of the person who last changed it. Raises Denied, NameTaken,
    SecretNeeded."""
    permissions.require(user, actor, PERMISSION, subject=schedule.name)
    before = facts(schedule)
    _set(schedule, given)
    schedule.owner, schedule.owner_name = user, actor.name
    try:
        with audited(actor) as trail:
            schedule.save(update_fields=[*_FIELDS, "sealed", "key_id", "owner", "owner_name"])
            soon = following(Interval(schedule.interval), timezone.now())
            ExportSchedule.objects.filter(pk=schedule.pk, next_at__gt=soon).update(next_at=soon)
            details: dict[str, Any] = {"before": before, "after": facts(schedule)}
            details |= {"secret_key": "replaced"} if given.secret_key else {}
            trail.note(AuditAction.SCHEDULE_CHANGE, None, schedule.name, details)
    except IntegrityError:
        raise NameTaken from None


def pause(user: access.User, actor: Actor, schedule: ExportSchedule, *, paused: bool) -> None:
    permissions.require(user, actor, PERMISSION, subject=schedule.name)
    with audited(actor) as trail:
        rows = ExportSchedule.objects.filter(pk=schedule.pk, paused_at__isnull=paused)
        if rows.update(paused_at=timezone.now() if paused else None):
            trail.note(AuditAction.SCHEDULE_CHANGE, None, schedule.name, {"paused": paused})


def delete(user: access.User, actor: Actor, schedule: ExportSchedule) -> None:
    """Files that were already exported are kept."""
    permissions.require(user, actor, PERMISSION, subject=schedule.name)
    with audited(actor) as trail:
        if schedule.delete()[0]:
            trail.note(AuditAction.SCHEDULE_DELETE, None, schedule.name, facts(schedule))


def run_now(user: access.User, actor: Actor, schedule: ExportSchedule) -> Export | None:
    """None while another export is open. Raises Denied, OnHold."""
    permissions.require(user, actor, PERMISSION, subject=schedule.name)
    if instance.is_held():
        raise OnHold
    return requesting.request_scheduled(schedule)


def run_due() -> list[Export]:
    """If there are two schedulers, one runs each export. An instance on hold exports nothing."""
    if instance.is_held():
        return []
    made = []
    now = timezone.now()
    for schedule in ExportSchedule.objects.filter(_is_due(now), paused_at=None).select_related("owner"):
        if requesting.is_open(schedule):  # still due once that one has ended
            continue
        next_at = following(Interval(schedule.interval), now)
        if (export := requesting.request_scheduled(schedule, next_at)) is not None:
            made.append(export)
    return made


def _is_due(now: datetime) -> Q:
    """Includes schedules whose time is later than their interval allows: it was set before the clock was set back, or
    by a machine whose clock is far ahead."""
    due = Q(next_at__lte=now)
    for interval in Interval:
        due |= Q(interval=interval, next_at__gt=following(interval, now + CLOCKS_DIFFER))
    return due


def following(interval: Interval, now: datetime) -> datetime:
    """The next full hour, midnight or Monday's midnight in UTC."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    if interval == Interval.HOURLY:
        return hour + timedelta(hours=1)
    midnight = hour.replace(hour=0)
    return midnight + timedelta(days=1 if interval == Interval.DAILY else 7 - midnight.weekday())


def opened(schedule: ExportSchedule) -> Secret:
    """The store's secret key. Only in workers. Raises crypto.SealError."""
    value = schedule.sealed or b""
    return crypto.open_sealed(value, key_id=schedule.key_id, table=TABLE, uid=schedule.uid, field="sealed")


def directories() -> list[str]:
    """The directories that the operator allows."""
    return [str(directory) for directory in settings.EXPORT_DIRECTORIES]


def where(schedule: ExportSchedule) -> str:
    if schedule.target == ExportTarget.DIRECTORY:
        return schedule.directory
    return "/".join(
        part for part in (schedule.endpoint.rstrip("/"), schedule.bucket, schedule.prefix.strip("/")) if part
    )


def facts(schedule: ExportSchedule) -> dict[str, Any]:
    names = ("name", "format", "payloads", "interval", "target", "region", "access_key")
    found: Mapping[str, Any] = {name: getattr(schedule, name) for name in names}
    return {
        **{name: str(value) if name != "payloads" else value for name, value in found.items()},
        "place": where(schedule),
    }


def _set(schedule: ExportSchedule, given: ScheduleSettings) -> None:
    same_store = (
        schedule.sealed is not None
        and bool(given.endpoint)
        and origin(schedule.endpoint) == origin(given.endpoint)
        and schedule.access_key == given.access_key
    )
    for name in _FIELDS:
        setattr(schedule, name, getattr(given, name))
    if given.target == ExportTarget.DIRECTORY:
        schedule.sealed, schedule.key_id = None, ""
    elif given.secret_key:
        text = given.secret_key.reveal()
        schedule.sealed, schedule.key_id = crypto.seal(text, table=TABLE, uid=schedule.uid, field="sealed")
    elif not same_store:
        raise SecretNeeded
