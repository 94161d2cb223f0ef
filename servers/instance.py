"""Whether this database is where it belongs. A copy of an installation opens no session until a person releases it:
otherwise both would use the same credentials, run the same commands and serve the same subscriptions.

What distinguishes a copy from the original, and survives a restart, an upgrade and a container recreated on the same
volume: for SQLite the database file itself (its inode and creation time) and, outside containers, the
machine; for PostgreSQL the system identifier of the cluster and the number of the database in it.
"""

import ctypes
import os
import struct
from pathlib import Path
from typing import Any, Final

from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from servers.audit.record import SYSTEM, Actor, Event
from servers.enums import AuditAction, AuditOutcome
from servers.models import Instance

#: primary key of the only row
KEY = 1
_MACHINE_ID = Path("/etc/machine-id")
_CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
#: file systems whose inode numbers are made up at each mount
_MADE_UP = ("fuse", "9p", "cifs", "smb", "virtiofs", "vboxsf", "prl_fs")
InstancePlace = dict[str, Any]


ON_HOLD: Final = "This instance is on hold: it sends nothing until an administrator releases it."


def held() -> Instance | None:
    """The row while no session may be opened."""
    return Instance.objects.filter(pk=KEY).exclude(held_at=None).first()


def is_held() -> bool:
    return Instance.objects.filter(pk=KEY).exclude(held_at=None).exists()


def check() -> list[Event]:
    """Called at each start, in a transaction: puts the instance on hold if its database was moved or copied, and
    releases it when the database is back in its place. Returns the events to record."""
    here = place()
    row, made = Instance.objects.select_for_update().get_or_create(pk=KEY, defaults={"place": here})
    if made or not here:
        return []
    same = _same(row.place, here)
    if same and row.held_at is None:
        if row.place != here:  # one fact may change while the others prove that it is the same
            _write(place=here)
        return []
    if same:
        _write(held_at=None, found={}, place=here)
        return [_event(AuditAction.INSTANCE_RELEASE, SYSTEM, "back in its place")]
    if row.held_at is not None and _same(row.found, here):
        return []
    _write(held_at=row.held_at or timezone.now(), found=here)
    return [_event(AuditAction.INSTANCE_HOLD, SYSTEM, reason(row.place, here))]


def release(actor: Actor) -> list[Event]:
    """Make this the installation from now on. Runs in a transaction; returns no events if it was not on hold."""
    if not Instance.objects.filter(pk=KEY).exclude(held_at=None).update(held_at=None, found={}, place=place()):
        return []
    return [_event(AuditAction.INSTANCE_RELEASE, actor, "released")]


def reason(before: InstancePlace, here: InstancePlace) -> str:
    """What differs, in words for the page and the log."""
    if not before or not here:
        return "The database was copied or moved."
    if before["kind"] != here["kind"]:
        return f"The database was moved from {before['kind']} to {here['kind']}."
    if here.get("kind") == "postgresql":
        return "The database is in another PostgreSQL cluster, or was re-created in the same one."
    if before.get("machine") and here.get("machine") and before["machine"] != here["machine"]:
        return "The database file is on a different machine than before."
    return "The database file was copied or restored: it is a different file than before."


def _write(**fields: Any) -> None:
    Instance.objects.filter(pk=KEY).update(**fields)


def _event(action: AuditAction, actor: Actor, words: str) -> Event:
    outcome = AuditOutcome.PENDING if action == AuditAction.INSTANCE_HOLD else AuditOutcome.OK
    return Event(action, outcome, actor, subject="instance", details={"reason": words})


# --- places ------------------------------------------------------------------------------------------------------------
def place() -> InstancePlace:
    """Where the database is; {} if unknown, in which case nothing is concluded from it."""
    if connection.vendor == "postgresql":
        return _cluster()
    return _file(Path(str(connection.settings_dict["NAME"])))


def _cluster() -> InstancePlace:
    try:
        with transaction.atomic(), connection.cursor() as cursor:  # a savepoint: the function may be forbidden
            cursor.execute(
                "SELECT system_identifier::text, (SELECT oid::text FROM pg_database WHERE datname = current_database())"
                " FROM pg_control_system()"
            )
            system, database = cursor.fetchone()
    except DatabaseError:
        return {}
    return {"kind": "postgresql", "system": system, "database": database}


def _file(path: Path) -> InstancePlace:
    try:
        mark = "" if _file_system(path).startswith(_MADE_UP) else file_mark(path)
    except OSError:  # in memory
        return {}
    machine = "" if _in_container() else _machine()
    return {"kind": "sqlite", "file": mark, "machine": machine, "path": str(path)}


def _same(before: InstancePlace, here: InstancePlace) -> bool:
    if not before:
        return True  # it was unknown then
    if before.get("kind") != here.get("kind"):
        return False
    if here["kind"] == "postgresql":
        return bool(before == here)
    if before["machine"] and here["machine"] and before["machine"] != here["machine"]:
        return False
    if before["file"] and here["file"]:
        return bool(before["file"] == here["file"])
    return bool(before["path"] == here["path"])


def file_mark(path: Path) -> str:
    """Inode and, where the system reports it, creation time: a copy differs in both, a rename changes neither."""
    stat = path.stat()
    return f"{stat.st_ino}:{getattr(stat, 'st_birthtime_ns', 0) or _birth_time(path)}"


def _birth_time(path: Path) -> int:
    """statx(2), which Python does not have; 0 where there is none."""
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError):
        return 0
    found = ctypes.create_string_buffer(256)
    at_fdcwd, statx_btime = -100, 0x800
    if statx(at_fdcwd, os.fsencode(path), 0, statx_btime, found) != 0:
        return 0
    mask, seconds, nanoseconds = struct.unpack_from("=I", found, 0)[0], *struct.unpack_from("=qI", found, 80)
    return seconds * 1_000_000_000 + nanoseconds if mask & statx_btime else 0


def _file_system(path: Path) -> str:
    """The type of the file system that holds `path`, "" where the system does not report it."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    best = ("", "")
    for line in mounts:
        mounted, _, kind = line.partition(" - ")
        point = mounted.split()[4]
        if len(point) >= len(best[0]) and path.resolve().is_relative_to(point):
            best = (point, kind.split()[0])
    return best[1]


def _in_container() -> bool:
    marked = any(mark.exists() for mark in _CONTAINER_MARKS)
    return marked or "container" in os.environ or "KUBERNETES_SERVICE_HOST" in os.environ


def _machine() -> str:
    try:
        return _MACHINE_ID.read_text().strip()
    except OSError:
        return ""
