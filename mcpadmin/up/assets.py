"""Static files with hashed names, compressed, collected once after each change of their sources."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders

from mcpadmin.static_files import HashedStorage
from mcpadmin.up import bundles
from servers.kit.styles import STYLES

FINGERPRINT = ".fingerprint"
MANIFEST = "staticfiles.json"


def collect() -> int:
    """Collect the files and return their number; 0 when the last collection is up to date.

    Builds in a draft directory, so a failed collection never replaces a complete one."""
    root = Path(settings.STATIC_ROOT)
    found = {path: storage for finder in get_finders() for path, storage in finder.list([])}
    stats = [
        (path, (stat := Path(storage.path(path)).stat()).st_size, stat.st_mtime_ns)
        for path, storage in sorted(found.items())
    ]
    sources = Path(bundles.__file__).read_bytes() + repr((STYLES, stats)).encode()
    fingerprint = hashlib.sha256(sources).hexdigest()
    if (root / MANIFEST).exists() and _read(root / FINGERPRINT) == fingerprint:
        return 0
    draft = root.with_name(f"{root.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    _build(found, draft)
    (draft / FINGERPRINT).write_text(fingerprint)
    # The parts may be loading meanwhile: they see the old collection or the new one.
    old = root.with_name(f"{root.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if root.exists():
        root.rename(old)
    draft.rename(root)
    shutil.rmtree(old, ignore_errors=True)
    return len(found)


def _build(found: dict[str, Any], draft: Path) -> None:
    target = HashedStorage(location=str(draft), base_url=settings.STATIC_URL)
    for path, source in found.items():
        with source.open(path) as file:
            target.save(path, file)
    paths = {*found, *bundles.write(draft)}
    for original, _hashed, processed in target.post_process({path: (target, path) for path in paths}):
        if isinstance(processed, OSError):  # the disk is full: no file is to blame
            raise processed
        if isinstance(processed, Exception):
            raise RuntimeError(f"static file {original} cannot be prepared") from processed


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
