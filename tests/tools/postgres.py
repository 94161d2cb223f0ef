"""A private PostgreSQL cluster in a temporary directory, reached through a unix socket."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.tools.prepared import prepared, run_in_shell, sources_of_database

SECONDS = 60
#: migrated like `postgres`, but without connections, so that it can be copied
TEMPLATE = "migrated"
MIGRATE = "from django.core.management import call_command; call_command('migrate', interactive=False, verbosity=0)"


def programs() -> Path | None:
    """Debian keeps initdb and pg_ctl off the PATH, in one directory per version."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    return Path(found).parent if found else None


def _run(*command: str) -> None:
    """PostgreSQL refuses to run as root, so root runs the command as the user postgres."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    done = subprocess.run([*prefix, *command], capture_output=True, text=True, timeout=SECONDS, cwd="/")
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def cluster(keep: Path | None = None) -> Iterator[str]:
    """Yields the DATABASE_URL of a migrated database without rows, or of the one that an earlier run kept in the
    directory `keep`. Skips where PostgreSQL is not installed."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    directory = _directory(keep)
    data = directory / "cluster"
    if not data.exists():
        _copy(prepared_cluster(found) / "cluster", data)
    with _running(found, directory, stop="fast" if keep else "immediate") as url:
        yield url
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)


def _directory(keep: Path | None = None) -> Path:
    """A directory that the user postgres can reach and write to."""
    directory = keep or Path(tempfile.mkdtemp(prefix="mcpadmin-pg-"))
    directory.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres")
    return directory


@contextmanager
def _running(programs: Path, directory: Path, *, stop: str) -> Iterator[str]:
    _start(programs, directory)
    try:
        yield f"postgres://mcpadmin@{quote(str(directory), safe='')}/postgres"
    finally:
        _stop(programs, directory, stop)


def _start(programs: Path, directory: Path) -> None:
    options = f"-k {directory} -c listen_addresses= -c fsync=off"
    _control(programs, directory, "-o", options, "-l", str(directory / "log"), "-w", "-t", str(SECONDS), "start")


def _stop(programs: Path, directory: Path, how: str) -> None:
    _control(programs, directory, "-m", how, "-w", "stop")


def _control(programs: Path, directory: Path, *words: str) -> None:
    _run(str(programs / "pg_ctl"), "-D", str(directory / "cluster"), *words)


@contextmanager
def away(url: str) -> Iterator[None]:
    """The server of a cluster's URL has crashed; afterwards it runs again."""
    found, directory = programs(), Path(unquote(urlsplit(url).hostname or ""))
    assert found is not None
    _stop(found, directory, "immediate")
    try:
        yield
    finally:
        _start(found, directory)


def prepared_cluster(programs: Path) -> Path:
    """A stopped cluster: initdb and the migrations take 15 s of CPU, a copy of what they made a tenth of one."""
    return prepared("postgres", [str(programs).encode(), *sources_of_database()], partial(_make, programs))


def _make(programs: Path, draft: Path) -> None:
    directory = _directory()
    data = str(directory / "cluster")
    _run(str(programs / "initdb"), "-D", data, "-U", "mcpadmin", "-A", "trust", "-E", "UTF8", "--no-sync")
    with _running(programs, directory, stop="fast") as url:
        run_in_shell(MIGRATE, draft / "data", DATABASE_URL=url)
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE postgres")
    _copy(directory / "cluster", draft / "cluster")
    shutil.rmtree(directory, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)  # keeps the owner


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with cluster() as url:
        yield url


@contextmanager
def own_database(cluster_url: str) -> Iterator[str]:
    """Yields the URL of a new migrated database, so that other tests on the same cluster keep theirs unchanged."""
    name = f"own_{uuid4().hex}"
    with psycopg.connect(cluster_url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        yield cluster_url.removesuffix("postgres") + name
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    with own_database(postgres_url) as url:
        yield url


def rows(url: str, sql: str, parameters: tuple[object, ...]) -> list[dict[str, Any]]:
    """Return rows in the same form as SQLite's: `?` marks a parameter, a UUID is its 32 hex digits."""
    with psycopg.connect(url, row_factory=dict_row) as database:
        found = database.execute(sql.replace("?", "%s"), parameters or None).fetchall()
    return [{name: value.hex if isinstance(value, UUID) else value for name, value in row.items()} for row in found]


def write(url: str, sql: str, parameters: tuple[object, ...]) -> None:
    with psycopg.connect(url) as database:
        database.execute(sql.replace("?", "%s"), parameters or None)


def files(url: str) -> bytes:
    """The contents of the tables and the journal of the cluster that `postgres_url` started."""
    with psycopg.connect(url) as database:
        row = database.execute("SHOW data_directory").fetchone()
    assert row is not None
    found = [file for part in ("base", "pg_wal") for file in (Path(row[0]) / part).rglob("*") if file.is_file()]
    assert found
    return b"".join(file.read_bytes() for file in found)
