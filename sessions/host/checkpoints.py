"""Signs checkpoints of the audit log and delivers them to the witnesses. The host checks at each tick; every worker may
do it, and the rows decide who does. Connections are guarded like every outbound one.
"""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Final

import structlog
from django.conf import settings
from django.utils import timezone

from servers import instance
from servers.audit.proof import alarms, checkpoints, file, witnesses
from servers.audit.proof.checkpoints import KeyReplaced, Misfit
from servers.audit.proof.key import KeyMissing
from servers.audit.proof.witnesses import Claimed, Place, WitnessKind
from servers.enums import AlarmKind
from servers.models import Checkpoint
from servers.secret import Secret
from sessions.host.cancelling import cancel_all
from sessions.host.db import Database, DatabaseAway
from sessions.host.due import DueTasks
from sessions.host.outbound import egress_policy
from sessions.host.sending import http, s3, syslog
from sessions.host.sending.failure import NotDelivered

#: RFC 5424: facility 13 (log audit), severity 5 (notice)
_PRIORITY: Final = 13 * 8 + 5
AT_ONCE: Final = 8
_JSONL: Final = "application/jsonl"
log = structlog.get_logger(__name__)


class Checkpoints:
    """Signs, then delivers to the witnesses what they do not have."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._witnesses = DueTasks(db, "witnesses", witnesses.due, self._deliver, at_once=AT_ONCE)
        self._looking: asyncio.Task[None] | None = None
        self._compared = False

    def look(self) -> None:
        """Call when something may be due."""
        if not self._witnesses.closed and self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="checkpoints")

    async def close(self) -> None:
        await cancel_all(self._looking)
        await self._witnesses.close()

    async def _look(self) -> None:
        try:
            if not await self._db.read(instance.is_held):  # the original signs; a copy has the same key
                await self._sign()
                self._witnesses.look()
        except DatabaseAway:
            pass  # the next tick looks again
        except Exception:  # a bug of ours here must not end the ticks
            log.exception("host.checkpoints_failed")
        finally:
            self._looking = None

    async def _sign(self) -> None:
        """Compare first; once after startup, even if there is nothing to sign."""
        due = await self._db.read(checkpoints.due)
        if not due and self._compared:
            return
        try:
            found = await self._db.read(checkpoints.misfits)
            if found:
                await self._db.write(partial(_sound, found), low_priority=True)
            elif due:
                await self._db.write(checkpoints.sign_regular, low_priority=True)
            self._compared = True
        except (KeyMissing, KeyReplaced) as problem:
            await self._db.write(partial(alarms.sound, AlarmKind.KEY, None, str(problem)), low_priority=True)
        except OSError as problem:  # an unread file may contradict what would be signed
            words = f"{settings.CHECKPOINT_FILE} cannot be read: {problem.strerror or problem}. No checkpoint is signed until then."
            await self._db.write(partial(witnesses.file_failed, words), low_priority=True)

    async def _deliver(self, place: Place) -> None:
        claimed = await self._db.write(partial(witnesses.claim, place), low_priority=True)
        if claimed is None or not claimed.checkpoints:
            return
        try:
            await self._sent(claimed)
        except NotDelivered as problem:
            await self._db.persist(partial(witnesses.failed, place, problem.detail))
        except OSError as problem:
            words = f"{settings.CHECKPOINT_FILE} cannot be written: {problem.strerror or problem}."
            await self._db.persist(partial(witnesses.failed, place, words))
        else:
            await self._db.persist(partial(witnesses.delivered, claimed))

    async def _sent(self, claimed: Claimed) -> None:
        """Raises NotDelivered, and OSError for the file."""
        place = claimed.place
        if place.kind is WitnessKind.FILE:
            await self._db.read(partial(_appended, claimed.checkpoints))
            return
        one = claimed.checkpoints[-1]
        if place.kind is WitnessKind.SYSLOG:
            await syslog.send(place.host, place.port, [syslog_message(one)], policy=egress_policy())
        elif place.kind is WitnessKind.HTTP:
            await http.send("POST", place.url, {"Content-Type": _JSONL}, line_of(one), policy=egress_policy())
        else:
            await self._put(place, one)

    async def _put(self, place: Place, one: Checkpoint) -> None:
        access_key, secret_key = settings.WITNESS_S3_ACCESS_KEY, Secret(settings.WITNESS_S3_SECRET_KEY)
        store = s3.Store(place.url, place.region, place.bucket, access_key, secret_key)
        name = object_name(one)
        key = f"{place.prefix}/{name}" if place.prefix else name
        until = timezone.now() + timedelta(days=place.days)
        await s3.put(
            store,
            key,
            line_of(one),
            policy=egress_policy(),
            content_type=_JSONL,
            lock_until=f"{until:%Y-%m-%dT%H:%M:%SZ}" if place.days else "",
        )


def _sound(found: list[Misfit]) -> None:
    alarm = alarms.sound_misfits(found)
    if alarm is not None:
        log.error("audit.alarm", kind=alarm.kind, seq=alarm.seq, words=alarm.words)


def _appended(rows: list[Checkpoint]) -> None:
    for row in rows:
        file.append(row.kind, row.note)


def object_name(one: Checkpoint) -> str:
    """Sorts by event. No object overwrites another one: retention signs two removals at the same event, one right after
    the other."""
    return f"{one.seq:015d}-{one.kind}-{one.at:%Y%m%dT%H%M%S.%f}.jsonl"


def line_of(one: Checkpoint) -> bytes:
    """Every witness gets a line in the format of the checkpoint file: together, the lines are a file for the
    verifier."""
    return file.line(one.kind, one.note).encode()


def syslog_message(one: Checkpoint) -> bytes:
    """RFC 5424."""
    head = f"<{_PRIORITY}>1 {one.at:%Y-%m-%dT%H:%M:%S.%fZ} - mcpadmin - checkpoint - \ufeff"
    return head.encode() + line_of(one).rstrip(b"\n")
