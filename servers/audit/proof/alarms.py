"""Alarms: inconsistencies of the audit log, until an administrator acknowledges them with a reason."""

from collections.abc import Callable
from dataclasses import dataclass

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from servers.audit.proof import checkpoints, file
from servers.audit.proof.checkpoints import Misfit
from servers.audit.record import SYSTEM, Actor, Event, record
from servers.audit.verdict import Broken
from servers.enums import AlarmKind, AuditAction, AuditOutcome, StatementKind
from servers.models import AuditAlarm, Checkpoint

_BY_CHECKPOINT = (AlarmKind.BEHIND, AlarmKind.REWRITTEN)
_WORDS_CHARS = 1_000
#: statements that an acknowledgement searches for the last one that still matches the log
_SEARCHED = 10_000
#: comparisons outside a transaction before one is made inside it
_TRIES = 3


def waiting() -> QuerySet[AuditAlarm]:
    """Not acknowledged yet."""
    return AuditAlarm.objects.filter(acknowledged_at=None)


def standing() -> list[AuditAlarm]:
    """Not acknowledged yet, newest first."""
    return list(waiting())


def sound(kind: AlarmKind, seq: int | None, words: str) -> AuditAlarm | None:
    """Raise an alarm and record it. None if the same one is open or was acknowledged: the verification itself still
    reports what it finds."""
    with transaction.atomic():
        if _is_known(kind, seq, words[:_WORDS_CHARS]):
            return None
        alarm = AuditAlarm.objects.create(kind=kind, seq=seq, words=words[:_WORDS_CHARS], found_at=timezone.now())
        details = {"alarm": kind.value, "event": seq, "words": alarm.words}
        record(Event(AuditAction.AUDIT_ALARM, AuditOutcome.FAILED, SYSTEM, subject=kind.label, details=details))
    return alarm


def acknowledged_damage() -> Callable[[Broken], bool]:
    """Whether an administrator has acknowledged what a verification finds."""
    accepted = AuditAlarm.objects.filter(kind=AlarmKind.BROKEN).exclude(acknowledged_at=None)
    known = {words if seq is None else seq for seq, words in accepted.values_list("seq", "words")}
    return lambda broken: (str(broken)[:_WORDS_CHARS] if broken.seq is None else broken.seq) in known


def _is_known(kind: AlarmKind, seq: int | None, words: str) -> bool:
    of_kind = AuditAlarm.objects.filter(kind=kind)
    standing = of_kind.filter(acknowledged_at=None)
    if kind in _BY_CHECKPOINT:
        return standing.exists()
    if seq is not None:
        return of_kind.filter(seq=seq).exists()
    same = of_kind.filter(seq=None, words=words)  # no event tells one from another
    if kind != AlarmKind.KEY:
        return same.exists()
    # A key that has signed since the last alarm is missing again.
    signed_at = Checkpoint.objects.values_list("at", flat=True).first()
    return standing.exists() or (same if signed_at is None else same.filter(found_at__gt=signed_at)).exists()


def sound_misfits(found: list[Misfit]) -> AuditAlarm | None:
    """Raise one alarm for everything in the checkpoint file that contradicts the log."""
    if not found:
        return None
    worst = next((one for one in found if not one.behind), found[-1])
    return sound(AlarmKind.BEHIND if worst.behind else AlarmKind.REWRITTEN, worst.seq, worst.words)


def acknowledge(alarm: AuditAlarm, actor: Actor, reason: str) -> bool:
    """False if another administrator was faster. For a log that does not match its checkpoints, a signed statement
    retracts those that the log contradicts. Raises KeyMissing, KeyReplaced: then the alarm stays open.

    Not inside of `atomic()`: the signatures of thousands of statements are verified first, and no writer waits for that.
    """
    found = None
    for _ in range(_TRIES):
        found = _Comparison.read() if alarm.kind in _BY_CHECKPOINT else None
        with transaction.atomic():
            checkpoints.one_at_a_time()
            if found is None or found.version == _version():
                return _acknowledged(alarm, actor, reason, found)
    with transaction.atomic():  # a statement was added during each attempt
        checkpoints.one_at_a_time()
        return _acknowledged(alarm, actor, reason, _Comparison.read())


def _acknowledged(alarm: AuditAlarm, actor: Actor, reason: str, found: "_Comparison | None") -> bool:
    now = {"acknowledged_at": timezone.now(), "acknowledged_by": actor.name, "reason": reason[:1_000]}
    if not AuditAlarm.objects.filter(pk=alarm.pk, acknowledged_at=None).update(**now):
        return False
    details = {"alarm": alarm.kind, "event": alarm.seq, "words": alarm.words, "reason": reason[:1_000]}
    if found is not None and found.lost:
        checkpoints.sign(StatementKind.RESTORED, found.shared, found.hash, lost=str(found.lost))
        details |= {"shared": found.shared, "lost": found.lost}
    subject = AlarmKind(alarm.kind).label
    record(Event(AuditAction.AUDIT_ACKNOWLEDGE, AuditOutcome.OK, actor, subject=subject, details=details))
    return True


@dataclass(frozen=True)
class _Comparison:
    """Where the earlier log is given up: after `shared`, the event of the last statement that both logs share. `lost`:
    the last event that only the earlier log had, 0 if there is none. `version`: of the statements compared."""

    version: tuple[object, ...]
    shared: int = 0
    hash: str = ""
    lost: int = 0

    @classmethod
    def read(cls) -> "_Comparison":
        version = _version()
        known = [*checkpoints.statements(Checkpoint.objects.all()[:_SEARCHED]), *checkpoints.outside(_SEARCHED)]
        unfit = {one.statement.seq for one in checkpoints.misfits(known)}
        if not unfit:
            return cls(version)
        shared = max((one for one in known if one.seq < min(unfit)), key=lambda one: one.seq, default=None)
        return cls(version, *((shared.seq, shared.hash) if shared is not None else (0, "")), lost=max(unfit))


def _version() -> tuple[object, ...]:
    """Changes as soon as a statement is added, in the database or in the file."""
    return Checkpoint.objects.values_list("pk", flat=True).first(), file.version()
