"""The private working directory of each stdio server: in the data directory of the worker's machine, accessible to its
user only, removed with the server. These functions block: call them in a reader thread."""

import shutil
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import structlog
from django.conf import settings

from servers.enums import AuditAction
from servers.models import AuditEvent, Server, ServerDraft

log = structlog.get_logger(__name__)


def of_session(server: UUID, identity: UUID | None = None) -> Path:
    """Create the directory if needed. With `identity` it belongs to one person and is not shared. Raises OSError."""
    return _made(_root() / str(server), "work" if identity is None else f"work-{identity}")


def of_draft(draft: UUID) -> Path:
    """For the duration of a connection test. Raises OSError."""
    return _made(_root() / f"draft-{draft}", "work")


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


def packages_of(private: Path) -> Path:
    """Where the packages of a launcher are installed: beside the private working directory. It is not made here."""
    return private.parent / private.name.replace("work", "packages", 1)


def packages_of_session(server: UUID, identity: UUID | None = None) -> Path:
    return packages_of(_root() / str(server) / ("work" if identity is None else f"work-{identity}"))


def packages_of_draft(draft: UUID) -> Path:
    return packages_of(_root() / f"draft-{draft}" / "work")


def _root() -> Path:
    return Path(settings.DATA_DIR) / "servers"


def _made(parent: Path, name: str) -> Path:
    for path in (parent.parent, parent, parent / name):
        path.mkdir(mode=0o700, exist_ok=True)
    return parent / name


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path, onerror=lambda _, name, __: log.warning("host.directory_not_removed", path=str(name)))


def _uid(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None
