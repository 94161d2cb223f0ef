"""The files of exports: private to the account that runs mcpadmin, and removed when they expire."""

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from servers.exporting import selection
from servers.models import Export

log = structlog.get_logger(__name__)
#: an export leaves this much of its disk free, or a twentieth if that is less: the database may be on the same disk
_LEFT_FREE = 1024**3
#: rows of finished exports
KEPT = 200
_UNFINISHED = ".part"
#: `path_of` and its unfinished copies: whatever else an operator keeps in the folder stays
_OURS = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.")


def path_of(export: Export) -> Path:
    return _folder() / f"{export.uid}.{export.format}"


def name_of(export: Export) -> str:
    """The name of a downloaded or uploaded file."""
    span = f"{selection.begins_at(export)}-{export.last_seq}"
    at = (export.finished_at or timezone.now()).strftime("%Y%m%dT%H%M%SZ")
    return f"{_prefix()}{span}-{at}.{export.format}"


def _prefix() -> str:
    instance = "".join(char if char.isalnum() and char.isascii() else "-" for char in settings.INSTANCE_NAME)
    return f"{instance}-audit-"


def here(export: Export) -> bool:
    """Whether the file can be read on this machine."""
    return export.expires_at is not None and path_of(export).is_file()


def machine() -> str:
    return platform.node()


@dataclass
class Output:
    """A file that is being written. `write` takes text; `size` and `digest` (SHA-256) are those of its bytes."""

    _file: Any
    size: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    def write(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)
        return len(text)

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())


@contextmanager
def written(export: Export) -> Iterator[Output]:
    """The file appears under its name when the block has succeeded, complete and on disk. Raises OSError, also if a
    later attempt began meanwhile: each attempt has its own file name, so that none publishes what another one wrote."""
    final = path_of(export)
    for earlier in final.parent.glob(f"{final.name}*{_UNFINISHED}"):
        earlier.unlink(missing_ok=True)
    partial = final.with_name(f"{final.name}.{secrets.token_hex(4)}{_UNFINISHED}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb", buffering=1024 * 1024) as file:
            yield Output(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(final)
        _sync_names(final.parent)
    except BaseException:  # however it ends, nothing unfinished stays
        with suppress(FileNotFoundError):
            partial.unlink()
        raise


def require_space() -> None:
    """Raises OSError before the disk is full."""
    usage = shutil.disk_usage(_folder())
    if usage.free < min(_LEFT_FREE, usage.total // 20):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def put_into(directory: Path, name: str, source: Path) -> Path:
    """Copy a finished file into one of the operator's directories, completely or not at all. Raises OSError."""
    target, partial = directory / name, directory / f".{name}{_UNFINISHED}"
    for left in directory.glob(f".{_prefix()}*{_UNFINISHED}"):  # left by an attempt that was killed
        if _is_old(left):
            left.unlink(missing_ok=True)
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as copy, source.open("rb") as file:
            shutil.copyfileobj(file, copy, 1024 * 1024)
            copy.flush()
            os.fsync(copy.fileno())
        partial.replace(target)
        _sync_names(directory)  # before the schedule's cursor moves past these events
    except BaseException:  # as above
        with suppress(OSError):
            partial.unlink()
        raise
    return target


def _sync_names(folder: Path) -> None:
    """A renamed file may have its old name again after a power failure until its folder is synced to disk too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # a network file system may not support it
            raise
    finally:
        os.close(descriptor)


def _is_old(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime < (timezone.now() - timedelta(days=1)).timestamp()
    return False


def remove(export: Export) -> None:
    with suppress(FileNotFoundError):
        path_of(export).unlink()
    Export.objects.filter(pk=export.pk).update(expires_at=None)


def expire() -> int:
    """Remove files of exports that have expired or whose row is gone, and the oldest rows. Returns the number of files
    removed. Another machine may have ended an export whose file is on this one."""
    removed = 0
    # its job was given up, or is gone
    ended = Export.objects.filter(Q(job=None) | Q(job__finished_at__isnull=False), finished_at=None)
    ended.update(finished_at=timezone.now(), failed=True, detail="Gave up after several attempts.")
    for export in Export.objects.filter(expires_at__lte=timezone.now()):
        remove(export)
        removed += 1
    wanted = Export.objects.filter(Q(finished_at=None) | Q(expires_at__isnull=False))
    known = {str(uid) for uid in wanted.values_list("uid", flat=True)}
    for path in _folder().iterdir():
        if path.is_dir() and not path.is_symlink():  # not ours: a volume has its `lost+found`, a share its snapshots
            continue
        if (ours := _OURS.match(path.name)) is None:
            continue
        try:
            if ours[1] not in known or (path.name.endswith(_UNFINISHED) and _is_old(path)):
                path.unlink()
                removed += 1
        except FileNotFoundError:
            continue
        except OSError as problem:
            log.warning("exports.not_removed", file=path.name, problem=str(problem))
    over = Export.objects.filter(expires_at=None).exclude(finished_at=None)
    Export.objects.filter(pk__in=list(over.values_list("pk", flat=True)[KEPT:])).delete()
    return removed


def _folder() -> Path:
    folder = Path(settings.DATA_DIR) / "exports"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
