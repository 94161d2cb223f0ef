"""What a start and pages meet at a PostgreSQL that others use and restart."""

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from servers.advisory_locks import AdvisoryLock
from tests.sessions.host.harness import eventually
from tests.tools.prepared import ROOT, clean_environment, copy_static_files

LOCK = AdvisoryLock.MIGRATIONS.value
pytestmark = [pytest.mark.postgres, pytest.mark.integration]
WAITING = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = %s"
#: pages leave nine connections behind; the server restarts; two more pages come
PAGES = """
import django; django.setup()
from django.db import connection
import psycopg, sys

def page():
    try:
        with connection.cursor() as cursor:
            return cursor.execute("SELECT 1").fetchone()[0]
    finally:
        connection.close()

page()
used = [connection.pool.getconn() for _ in range(9)]
for one in used:
    connection.pool.putconn(one)
with psycopg.connect(sys.argv[1], autocommit=True) as server:
    server.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
print(page(), page())
connection.close_pool()
"""


def environment(url: str, data_dir: Path) -> dict[str, str]:
    own = {"MCPADMIN_DATA_DIR": str(data_dir), "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "mcpadmin.settings"}
    return clean_environment(**own)


def test_pages_after_a_restart_of_the_database_get_connections_that_work(
    postgres_database: str, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", PAGES, postgres_database]
    env = environment(postgres_database, tmp_path)
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1", "1"], done.stderr


def test_a_database_of_another_encoding_is_refused_with_the_remedy(postgres_url: str, tmp_path: Path) -> None:
    copy_static_files(tmp_path)
    name = f"ascii_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
        words = [sys.executable, "manage.py", "prepare"]
        env = environment(postgres_url.removesuffix("postgres") + name, tmp_path)
        done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert done.returncode == 1
    assert "the database has the encoding SQL_ASCII, but mcpadmin needs UTF8. Create it with: createdb" in done.stderr


def test_a_start_waits_while_another_machine_migrates(postgres_database: str, tmp_path: Path) -> None:
    copy_static_files(tmp_path)
    with psycopg.connect(postgres_database, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
        words, env = [sys.executable, "manage.py", "prepare"], environment(postgres_database, tmp_path)
        start = subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
        eventually(lambda: other.execute(WAITING, (LOCK,)).fetchone())
        other.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))
        said, _ = start.communicate(timeout=120)
    assert (start.returncode, "nothing to migrate" in said) == (0, True)
