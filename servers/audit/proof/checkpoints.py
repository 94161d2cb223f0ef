"""Checkpoints: signed statements of where the log ends, in the database and, through the witnesses, outside it.

A worker signs one when the log has grown: after CHECKPOINT_SECONDS, or at once after CHECKPOINT_EVENTS. Before that it
compares the log with the newest statements of the checkpoint file, so that a log that does not match is never signed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from servers.advisory_locks import AdvisoryLock, in_transaction
from servers.audit.proof import file, key
from servers.audit.proof.key import SigningKey
from servers.audit.proof.notes import EMPTY_HASH, NoteInvalid, Statement, opened, signed, stamp, time_of
from servers.audit.record import CHAIN
from servers.enums import StatementKind
from servers.models import AuditEvent, AuditHead, Checkpoint
from servers.sql import database

#: statements of the checkpoint file that are compared with the log, from the newest on
COMPARED = 100


@dataclass(frozen=True)
class Misfit:
    """A statement that the log contradicts. `seq`: the first event that does not match."""

    statement: Statement
    seq: int
    words: str
    behind: bool


class KeyReplaced(Exception):
    """The log's newest checkpoint was signed by a key that this process does not have. The message is for a page."""


# --- signing ------------------------------------------------------------------------------------------------------------
def due() -> bool:
    """Whether enough events have no checkpoint, or one has waited long enough. Only reads."""
    newest = Checkpoint.objects.filter(kind=StatementKind.REGULAR).values_list("seq", flat=True).first() or 0
    unsigned = head()[0] - newest
    if unsigned <= 0:
        return False
    since = AuditEvent.objects.filter(seq=newest + 1).values_list("at", flat=True).first()
    # an event that far in the future was recorded before the clock was set back, so it counts as old
    old = since is None or abs(timezone.now() - since) >= timedelta(seconds=settings.CHECKPOINT_SECONDS)
    return unsigned >= settings.CHECKPOINT_EVENTS or old


def sign_regular() -> Checkpoint | None:
    """Sign the log's end. None if another process was faster, or nothing is due. Raises KeyMissing, KeyReplaced.

    Call it only after `misfits` found none.
    """
    with transaction.atomic():
        one_at_a_time()
        return sign(StatementKind.REGULAR, *head()) if due() else None


def sign(kind: StatementKind, seq: int, digest: str, **more: str) -> Checkpoint:
    """Store a signed statement. Raises KeyMissing, KeyReplaced."""
    signing = own_key()
    with transaction.atomic():
        one_at_a_time()
        statement = Statement(kind, seq, digest or EMPTY_HASH, timezone.now(), more)
        return Checkpoint.objects.create(
            kind=kind,
            seq=seq,
            hash=statement.hash,
            at=statement.at,
            key_id=signing.public.id.hex(),
            note=signed(statement, signing.private, signing.public),
        )


def own_key() -> SigningKey:
    """Raises KeyMissing, and KeyReplaced where the file has not the key of this log."""
    signing = key.load()
    newest = Checkpoint.objects.values_list("key_id", flat=True).first()
    if newest is not None and newest not in {known.id.hex() for known in signing.trusted}:
        raise KeyReplaced(
            f"The newest checkpoint was signed with key {newest}, and this process has key {signing.public.id.hex()}. Restore "
            f"the key file {settings.CHECKPOINT_KEY_FILE}, or run {settings.PROGRAM} checkpoint_key --replace."
        )
    return signing


def one_at_a_time() -> None:
    """Lock until the end of the transaction: a witness that has one statement is not checked for earlier ones, so none
    may be committed after a later one."""
    in_transaction(database(), AdvisoryLock.CHECKPOINTS)


def head() -> tuple[int, str]:
    found = AuditHead.objects.filter(chain=CHAIN).values_list("seq", "hash").first()
    return found or (0, "")


def signers() -> list[str]:
    """Ids of the keys that the database's statements name."""
    return list(Checkpoint.objects.order_by().values_list("key_id", flat=True).distinct())


def forget(key_ids: list[str]) -> int:
    """Give up the statements of lost keys, in a transaction. The newest cut among them is signed again unchanged:
    without it, the log would have no beginning. So are the newest removals: without them, rows would be reported
    missing."""
    lost = Checkpoint.objects.filter(key_id__in=key_ids)
    removed = _removed(lost.filter(kind=StatementKind.REMOVAL))
    cut = lost.filter(kind=StatementKind.CUT).order_by("-seq").first()
    first = cut is not None and AuditEvent.objects.order_by("seq").first()
    count, _ = lost.delete()
    if cut is not None and first:
        sign(StatementKind.CUT, cut.seq, cut.hash, first="1", until=stamp(first.at))
    for rows, before in removed.items():
        sign(StatementKind.REMOVAL, *head(), rows=rows, before=stamp(before))
    return count


def _removed(lost: "QuerySet[Checkpoint]") -> dict[str, datetime]:
    """For each kind of rows, the time before which they may be missing, according to notes that can no longer be
    verified. A time in the future is capped at now: rows that do not exist yet cannot have been removed."""
    now, found = timezone.now(), dict[str, datetime]()
    for note in lost.values_list("note", flat=True):
        more = dict(line.partition(" ")[::2] for line in note.split("\n"))
        try:
            rows, before = more["rows"], min(now, time_of(more["before"]))
        except (KeyError, ValueError):
            continue
        found[rows] = max(before, found.get(rows, before))
    return found


# --- reading ------------------------------------------------------------------------------------------------------------
def statements(rows: Any = None) -> Iterator[Statement]:
    """The statements in the database that one of our keys signed, newest first."""
    for _, one in signed_rows(Checkpoint.objects.all() if rows is None else rows):
        yield one


def signed_rows(rows: "QuerySet[Checkpoint]") -> Iterator[tuple[int, Statement]]:
    """Like `statements`, each with the primary key of its row."""
    trusted = key.load().trusted
    for pk, note in rows.values_list("pk", "note").iterator():
        try:
            yield pk, opened(note, trusted)
        except NoteInvalid:
            continue


def newest_cut() -> Statement | None:
    """The newest cut in the database or the checkpoint file: the events up to it may be gone."""
    stored = next(statements(Checkpoint.objects.filter(kind=StatementKind.CUT).order_by("-seq")), None)
    cuts = [found for found in [stored, *outside()] if found is not None and found.kind == StatementKind.CUT]
    return max(cuts, key=lambda cut: cut.seq, default=None)


def outside(most: int = COMPARED) -> list[Statement]:
    """The newest statements of the checkpoint file that one of our keys signed, oldest first."""
    trusted, found = key.load().trusted, []
    for note in file.newest(most):
        try:
            found.append(opened(note, trusted))
        except NoteInvalid:
            continue
    return found


def void(statement: Statement, restorations: list[Statement]) -> bool:
    """Whether a later restoration of the database, which a person accepted, retracted this statement."""
    return any(statement.seq > one.seq and statement.at < one.at for one in restorations)


def restorations() -> list[Statement]:
    stored = statements(Checkpoint.objects.filter(kind=StatementKind.RESTORED))
    return [*stored, *(one for one in outside() if one.kind == StatementKind.RESTORED)]


# --- comparing ----------------------------------------------------------------------------------------------------------
def misfits(known: list[Statement] | None = None) -> list[Misfit]:
    """Statements of the checkpoint file that the log contradicts, by event. Only reads; raises KeyMissing."""
    known = outside() if known is None else known
    taken_back = restorations()
    known = [one for one in known if not void(one, taken_back)]
    cut = newest_cut()
    last = head()[0]
    events = AuditEvent.objects.filter(seq__in={one.seq for one in known})
    hashes = dict(events.values_list("seq", "hash"))
    found, good = [], 0
    if cut is not None:
        hashes[cut.seq], good = cut.hash, cut.seq
    for one in sorted(known, key=lambda one: one.seq):
        if one.seq == 0 or (cut is not None and one.seq < cut.seq):
            continue
        signed = f"The checkpoint signed at {spoken(one.at)} says that it had {one.seq:,} events."
        if hashes.get(one.seq) == one.hash:
            good = one.seq
        elif one.seq > last:
            found.append(Misfit(one, last + 1, f"The log ends at event {last}. {signed}", behind=True))
        else:
            words = f"Event {one.seq} is not the one that was signed. {signed}"
            found.append(Misfit(one, good + 1, words, behind=False))
    return found


def spoken(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
