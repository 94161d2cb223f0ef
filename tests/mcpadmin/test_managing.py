"""`manage.py` from its own process: which data directory a command uses."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.tools.prepared import ADMIN, DATABASE, ROOT, clean_environment, copy_database, copy_static_files


def test_an_option_of_a_registered_command_is_never_taken_for_one_of_ours(tmp_path: Path) -> None:
    copy_database(tmp_path / DATABASE, administrator=True)
    own = ["notes-server", "--data-dir", str(tmp_path / "of-the-server"), "--data-dir=elsewhere"]
    words = ["register_server", "--user", ADMIN[0], "--disabled", "--name", "Notes", "--", *own]
    done = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        env=clean_environment(MCPADMIN_DATA_DIR=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        (found,) = database.execute("SELECT arguments FROM servers_server").fetchone()
    assert json.loads(found) == own[1:]


def users(data_dir: Path) -> "subprocess.CompletedProcess[str]":
    own = clean_environment(MCPADMIN_DATA_DIR=str(data_dir))
    words = [sys.executable, "manage.py", "users", "list"]
    return subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True, check=False)


def test_a_command_before_the_first_start_says_in_one_line_what_to_do(tmp_path: Path) -> None:
    done = users(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"mcpadmin cannot run: the database {tmp_path / DATABASE} has not been set up for this version of mcpadmin. "
        "Start mcpadmin once, or set MCPADMIN_DATA_DIR and DATABASE_URL as for the installation that you mean."
    ]


def test_a_preparation_says_that_https_without_a_trusted_proxy_redirects_endlessly(tmp_path: Path) -> None:
    copy_database(tmp_path / DATABASE)
    copy_static_files(tmp_path)
    own = clean_environment(MCPADMIN_DATA_DIR=str(tmp_path), MCPADMIN_PUBLIC_URL="https://mcp.example.org")
    words = [sys.executable, "manage.py", "prepare"]
    done = subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "warning: MCPADMIN_PUBLIC_URL is https, yet no proxy is trusted" in done.stderr


def test_an_older_version_refuses_a_database_that_a_newer_one_migrated(tmp_path: Path) -> None:
    copy_database(tmp_path / DATABASE)
    copy_static_files(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
        database.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('servers', '0999_later', '2026-01-01 00:00:00')"
        )
    words, own = [sys.executable, "manage.py", "prepare"], clean_environment(MCPADMIN_DATA_DIR=str(tmp_path))
    done = subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"mcpadmin cannot run: the database {tmp_path / DATABASE} was migrated by a newer version of mcpadmin (0999_later). "
        "Install that version, or restore the backup from before the upgrade."
    ]


def test_a_command_leaves_no_key_in_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    done = users(tmp_path)
    assert done.returncode == 1
    assert f"mcpadmin cannot run: {tmp_path} is not empty, and nothing in it belongs to mcpadmin." in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
