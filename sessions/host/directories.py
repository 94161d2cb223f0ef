"""The private working directory of each stdio server: in the data directory of the worker's machine, accessible to its
user only, removed with the server. Those of one person are removed with their identity. These functions block: call them
in a reader thread."""

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog
from django.conf import settings

from servers.enums import AuditAction
from servers.models import AuditEvent, Identity, Server, ServerDraft
from sessions.host import trees

#: the folders of a session; each person has their own
_NAMES = ("work", "home", "tmp", "view", "packages")
log = structlog.get_logger(__name__)


def work_of_session(server: UUID, identity: UUID | None = None) -> Path:
    """The path of the directory. With `identity`, it belongs to one person and is not shared."""
    return _root() / str(server) / ("work" if identity is None else f"work-{identity}")


def work_of_draft(draft: UUID) -> Path:
    """The directory of a connection test, for its duration."""
    return _root() / f"draft-{draft}" / "work"


def made(private: Path) -> Path:
    """Create the directory if needed. Raises OSError."""
    return _made(private.parent, private.name)


@dataclass(frozen=True)
class Folders:
    """The private folders of a confined server besides `work`. `mount_point` is empty and stays ours."""

    home: Path
    tmp: Path
    mount_point: Path


def confined(server: UUID, identity: UUID | None, user: int | None, *, reachable: bool) -> Folders:
    """Create the folders of a session if needed. `user`: who is to own them, if not us. `reachable`: that user must be
    able to traverse our own folders, which does not let them list any. Raises OSError."""
    return _confined(_root() / str(server), "" if identity is None else f"-{identity}", user, reachable)


def confined_draft(draft: UUID, user: int | None, *, reachable: bool) -> Folders:
    return _confined(_root() / f"draft-{draft}", "", user, reachable)


def _confined(parent: Path, suffix: str, user: int | None, reachable: bool) -> Folders:
    home, tmp, mount_point = (_made(parent, f"{name}{suffix}") for name in ("home", "tmp", "view"))
    if os.geteuid() == 0:
        work = parent / f"work{suffix}"
        for place in (home, tmp, *([work] if work.exists() else [])):
            hand_over(place, user)
        if reachable and user is not None:
            for place in (parent.parent.parent, parent.parent, parent):
                place.chmod(stat.S_IMODE(place.stat().st_mode) | 0o011)
    return Folders(home, tmp, mount_point)


def hand_over(folder: Path, user: int | None) -> None:
    """As root, give a folder to its server's user, or take it back. Files with several hard links keep their owner: one
    of the links may be elsewhere."""
    user = user or 0
    if folder.stat().st_uid == user:
        return
    try:
        _hand_over(folder, user)
    except RecursionError:
        raise OSError(errno.ENAMETOOLONG, "Folders are nested too deeply", str(folder)) from None
    os.chown(folder, user, user)


def _hand_over(folder: Path, user: int) -> None:
    for _, folders, files, descriptor in os.fwalk(folder):
        for name in (*folders, *files):
            state = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISDIR(state.st_mode) or state.st_nlink == 1:
                os.chown(name, user, user, dir_fd=descriptor, follow_symlinks=False)


def remove_draft(draft: UUID) -> None:
    _remove(_root() / f"draft-{draft}")


def remove_if_deleted(server: UUID) -> None:
    if not Server.objects.filter(uid=server).exists():
        _remove(_root() / str(server))


def remove_deleted() -> None:
    """Remove directories of servers that were deleted while no worker of this machine ran, and of interrupted tests.

    A server that is merely missing (another database, an older backup) keeps its files: its deletion must be in the
    audit log."""
    with suppress(FileNotFoundError):
        for path in list(_root().iterdir()):
            draft = _uid(path.name.removeprefix("draft-"))
            server = _uid(path.name)
            deleted = server and AuditEvent.objects.filter(action=AuditAction.SERVER_DELETE, server_uid=server)
            if server and deleted and deleted.exists():
                remove_if_deleted(server)
            elif server is None and draft and not ServerDraft.objects.filter(uid=draft).exists():
                _remove(path)


def remove_if_ended(server: UUID, identity_id: int) -> None:
    """Remove a person's own folders if their identity has ended. Call it only while the session can't be opened
    again."""
    for identity in Identity.objects.filter(pk=identity_id).exclude(ended_at=None).values_list("uid", flat=True):
        _remove_personal(server, identity)


def remove_ended() -> None:
    """Like `remove_if_ended`, for identities that ended while they had no session on this machine. One that is merely
    missing keeps its files, as in `remove_deleted`."""
    found = {(_uid(path.parent.name), _uid(path.name.partition("-")[2])) for path in _root().glob("*/*-*")}
    for server, identity in found:
        if server is not None and identity is not None and _has_ended(server, identity):
            _remove_personal(server, identity)


def _has_ended(server: UUID, identity: UUID) -> bool:
    for ended_at in Identity.objects.filter(uid=identity).values_list("ended_at", flat=True):
        return ended_at is not None
    ends = AuditEvent.objects.filter(action=AuditAction.IDENTITY_END, server_uid=server)
    return ends.filter(body__contains=f'"identity":"{identity}"').exists()  # the account has been deleted since


def _remove_personal(server: UUID, identity: UUID) -> None:
    for name in _NAMES:
        _remove(_root() / str(server) / f"{name}-{identity}")


def packages_of(private: Path) -> Path:
    """Where a launcher's packages are installed: beside the private working directory. It is not created here."""
    return private.parent / private.name.replace("work", "packages", 1)


def _root() -> Path:
    return Path(settings.DATA_DIR) / "servers"


def _made(parent: Path, name: str) -> Path:
    for path in (parent.parent, parent, parent / name):
        path.mkdir(mode=0o700, exist_ok=True)
    return parent / name


def _remove(path: Path) -> None:
    if left := trees.remove(path):
        log.warning(
            "host.directory_not_removed", path=str(path), names=[name[:200] for name in left[:20]], count=len(left)
        )


def _uid(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None
