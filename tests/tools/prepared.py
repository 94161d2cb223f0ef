"""What every first start derives from the same code, built once and kept in tests/.prepared/: the migrated database,
the same with the first administrator, and the collected static files; tests/tools/postgres.py adds a cluster. A change
of their sources triggers a new build.

The installation's identity and its keys are not included: each product creates its own.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / ".prepared"
DATABASE = "mcpadmin.sqlite3"
ADMIN = ("ada", "correct horse battery staple")
MIGRATE = f"""
import sqlite3, sys
from contextlib import closing
from django.conf import settings
from django.core.management import call_command

def keep(name):
    source, target = settings.DATABASES["default"]["NAME"], settings.DATA_DIR / name
    with closing(sqlite3.connect(source)) as database, closing(sqlite3.connect(target)) as copy:
        database.backup(copy)

call_command("migrate", interactive=False, verbosity=0)
keep("empty.sqlite3")
call_command("createsuperuser", interactive=False, username={ADMIN[0]!r}, email="", verbosity=0)
keep("administrator.sqlite3")
"""
COLLECT = "from mcpadmin.up import assets; assets.collect()"


def clean_environment(**more: str) -> dict[str, str]:
    """The shell's environment without anything that configures mcpadmin."""
    ours = ("MCPADMIN_", "DJANGO_", "REDIS_URL", "DATABASE_URL", "CELERY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"PYTHONUNBUFFERED": "1"} | more


def prepare(data_dir: Path, *, database: bool = True, administrator: bool = False) -> Path:
    """Create a data directory in which `up` finds nothing to migrate and nothing to collect."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if database:  # the product migrates PostgreSQL itself
        copy_database(data_dir / DATABASE, administrator=administrator)
    copy_static_files(data_dir)
    return data_dir


def copy_static_files(data_dir: Path) -> None:
    """Also over those of older code."""
    shutil.rmtree(data_dir / "static", ignore_errors=True)
    made = prepared("static", _sources_of_static(), partial(run_in_shell, COLLECT))
    shutil.copytree(made / "static", data_dir / "static")


def copy_database(target: Path, *, administrator: bool = False) -> None:
    """Copy a migrated SQLite database, optionally with the user ADMIN."""
    made = prepared("database", sources_of_database(), partial(run_in_shell, MIGRATE))
    shutil.copyfile(made / ("administrator.sqlite3" if administrator else "empty.sqlite3"), target)
    target.chmod(0o600)


@cache
def sources_of_database() -> list[bytes]:
    """Read once by each process: that takes as long as everything else here."""
    total = hashlib.sha256((ROOT / "requirements-dev.lock").read_bytes() + MIGRATE.encode())
    for app in ("mcpadmin", "servers", "sessions"):
        for path in sorted((ROOT / app).rglob("*.py")):
            total.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return [total.digest()]


def _sources_of_static() -> Iterable[bytes]:
    """The same criteria as `assets.collect`, which also compares modification times."""
    yield (ROOT / "requirements-dev.lock").read_bytes()
    up = ROOT / "mcpadmin" / "up"
    for path in (
        ROOT / "mcpadmin" / "static_files.py",
        up / "assets.py",
        up / "bundles.py",
        ROOT / "servers/kit/styles.py",
    ):
        yield path.read_bytes()
    for path in sorted((ROOT / "static").rglob("*")):
        yield repr((str(path.relative_to(ROOT)), path.stat().st_size, path.stat().st_mtime_ns)).encode()


def prepared(kind: str, sources: Iterable[bytes], fill: Callable[[Path], None]) -> Path:
    """The directory that `fill` filled. Test processes run in parallel; the first one to get the lock builds it."""
    seen = hashlib.sha256()
    for source in sources:
        seen.update(hashlib.sha256(source).digest())
    found = KEPT / f"{kind}-{seen.hexdigest()[:24]}"
    if found.exists():
        return found
    with one_at_a_time(kind):
        if not found.exists():
            for old in KEPT.glob(f"{kind}-*"):
                shutil.rmtree(old, ignore_errors=True)
            draft = Path(tempfile.mkdtemp(prefix="draft-", dir=KEPT))
            try:
                fill(draft)
                draft.rename(found)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return found


@contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """Among all test processes of this checkout. Each start of a product keeps two processors busy: several at once
    take as long, and each of them longer than a test allows."""
    KEPT.mkdir(exist_ok=True)
    with (KEPT / f".{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_in_shell(code: str, data_dir: Path, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", code],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
        env=clean_environment(MCPADMIN_DATA_DIR=str(data_dir), DJANGO_SUPERUSER_PASSWORD=ADMIN[1], **environment),
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"nothing could be prepared:\n{done.stdout}{done.stderr}")
