"""`manage.py` from its own process: which data directory a command uses."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from django.core.management import get_commands

from mcpadmin.command_line import managing
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


def run(data_dir: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[bytes]":
    own = clean_environment(MCPADMIN_DATA_DIR=str(data_dir), **more)
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=own, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["-m", "mcpadmin", "cal"], "call"), (["manage.py", "usres"], "users"), (["manage.py", "frobnicate"], "")],
)
def test_a_misspelt_command_is_a_mistake_of_the_command_line_and_creates_nothing(
    words: list[str], meant: str, tmp_path: Path
) -> None:
    """1 would say that the tool ran and reported an error."""
    done = run(tmp_path / "data", *words)
    assert (done.returncode, (tmp_path / "data").exists()) == (2, False)
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"mcpadmin: Unknown command '{words[-1]}'.")
    assert (f"Did you mean {meant}?" in line) is bool(meant)


def test_every_management_command_is_known_without_the_settings() -> None:
    assert managing.commands() == get_commands().keys()


def test_a_reader_that_leaves_early_ends_a_command_without_a_traceback(tmp_path: Path) -> None:
    copy_database(tmp_path / DATABASE)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as unread:
        own = clean_environment(MCPADMIN_DATA_DIR=str(tmp_path))
        words = [sys.executable, "manage.py", "users", "permissions"]
        done = subprocess.run(words, cwd=ROOT, env=own, stdout=unread, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_export_is_utf_8_whatever_the_locale_says(tmp_path: Path) -> None:
    copy_database(tmp_path / DATABASE, administrator=True)
    server = ["register_server", "--user", ADMIN[0], "--disabled", "--name", "Zoë 漢", "--", "notes-server"]
    assert run(tmp_path, "manage.py", *server).returncode == 0
    done = run(tmp_path, "manage.py", "export_servers", "--user", ADMIN[0], PYTHONIOENCODING="iso-8859-15")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Zoë 漢" in json.loads(done.stdout.decode())["mcpServers"]


def users(data_dir: Path) -> "subprocess.CompletedProcess[str]":
    own = clean_environment(MCPADMIN_DATA_DIR=str(data_dir))
    words = [sys.executable, "manage.py", "users", "list"]
    return subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True, check=False)


def test_a_command_before_the_first_start_says_in_one_line_what_to_do(tmp_path: Path) -> None:
    done = users(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"mcpadmin cannot run: the database {tmp_path / DATABASE} has not been set up for this version of mcpadmin. "
        "Start mcpadmin once, or set MCPADMIN_DATA_DIR and DATABASE_URL to those of the installation that you mean."
    ]


def test_a_preparation_says_that_https_without_a_trusted_proxy_redirects_endlessly(tmp_path: Path) -> None:
    copy_database(tmp_path / DATABASE)
    copy_static_files(tmp_path)
    own = clean_environment(MCPADMIN_DATA_DIR=str(tmp_path), MCPADMIN_PUBLIC_URL="https://mcp.example.org")
    words = [sys.executable, "manage.py", "prepare"]
    done = subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "warning: MCPADMIN_PUBLIC_URL is https, but no proxy is trusted" in done.stderr


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


@pytest.mark.parametrize("content", ["", "{}", None])
def test_a_start_says_that_the_checkpoint_key_is_not_that_of_the_log(tmp_path: Path, content: str | None) -> None:
    key = tmp_path / "checkpoint_key.json"
    copy_database(tmp_path / DATABASE)
    copy_static_files(tmp_path)
    signed = "from servers.audit.proof.checkpoints import StatementKind, sign; sign(StatementKind.REGULAR, 0, '')"
    done = run(tmp_path, "manage.py", "shell", "--no-imports", "-c", signed)
    assert done.returncode == 0, done.stderr
    key.unlink()
    if content is not None:
        key.write_text(content)
    said = run(tmp_path, "manage.py", "prepare")
    assert said.returncode == 0
    (warning,) = [line for line in said.stderr.decode().splitlines() if "checkpoint" in line.lower()]
    assert warning.startswith("warning: No checkpoint of the audit log is signed.")
    assert str(key) in warning
    assert "estore" in warning


def test_a_start_with_an_empty_secret_key_is_refused_and_names_the_file(tmp_path: Path) -> None:
    copy_database(tmp_path / DATABASE)
    (tmp_path / "secret_key").touch()
    said = run(tmp_path, "manage.py", "prepare")
    assert said.returncode == 1
    (line,) = said.stderr.decode().splitlines()
    assert f"(empty file: {tmp_path / 'secret_key'})" in line
    assert "backup" in line


@pytest.mark.parametrize("program", [("manage.py",), ("-m", "mcpadmin")])
@pytest.mark.parametrize("words", [("help",), ("help", "rotate_keys"), ("rotate_keys", "--help")])
def test_the_help_names_the_program_that_runs_commands(
    tmp_path: Path, program: tuple[str, ...], words: tuple[str, ...]
) -> None:
    copy_database(tmp_path / DATABASE)
    shown = run(tmp_path, *program, *words).stdout.decode()
    assert f"{managing.PROGRAM} " in shown
    assert "python -m django" not in shown
    assert "__main__" not in shown


def test_static_files_that_cannot_be_written_are_reported_in_one_line(tmp_path: Path) -> None:
    copy_database(tmp_path / DATABASE)
    (tmp_path / "static.new").touch()  # where the folder is made: it cannot be, as on a full disk
    said = run(tmp_path, "manage.py", "prepare")
    assert said.returncode == 1
    (line,) = said.stderr.decode().splitlines()
    assert line.startswith(f"mcpadmin cannot run: the data directory {tmp_path} cannot be used (")
    assert "static.new" in line
