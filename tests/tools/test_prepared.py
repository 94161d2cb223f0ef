"""Prepared data directories match the code, and the process for management commands isolates each command."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from django.db.migrations.loader import MigrationLoader

from tests.tools import prepared
from tests.tools.warm import Commands

pytestmark = pytest.mark.integration
SAY = "import os; print(os.environ.get('GIVEN'), os.environ['MCPADMIN_DATA_DIR'])"


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(prepared.clean_environment(MCPADMIN_DATA_DIR=str(tmp_path)))
    yield made
    made.close()


def column(path: Path, sql: str) -> set[object]:
    with closing(sqlite3.connect(path)) as database:
        return {row if len(row) > 1 else row[0] for row in database.execute(sql)}


@pytest.mark.parametrize(("administrator", "users"), [(False, set()), (True, {prepared.ADMIN[0]})])
def test_a_prepared_database_has_every_migration_and_belongs_to_no_installation(
    tmp_path: Path, administrator: bool, users: set[str]
) -> None:
    prepared.copy_database(path := tmp_path / "copy.sqlite3", administrator=administrator)
    assert column(path, "SELECT app, name FROM django_migrations") == set(MigrationLoader(None).disk_migrations)
    assert column(path, "SELECT username FROM auth_user") == users
    assert column(path, "SELECT id FROM servers_instance") == set()
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_was_made_from_other_sources_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "KEPT", tmp_path)

    def kept(text: bytes) -> Path:
        return prepared.prepared("note", [text], lambda draft: (draft / "made").write_bytes(text))

    found = [kept(text) for text in (b"one", b"one", b"two")]
    assert found[0] == found[1]
    assert (found[2] / "made").read_text() == "two"
    assert not found[0].exists()


def test_each_command_has_an_environment_and_an_end_of_its_own(commands: Commands, tmp_path: Path) -> None:
    shell = ("shell", "--no-imports", "-c")
    assert commands.run(*shell, SAY, env={"GIVEN": "once"}) == (0, f"once {tmp_path}\n", "")
    assert commands.run(*shell, SAY).output == f"None {tmp_path}\n"
    failed = commands.run(*shell, "print('before'); raise ValueError('wrong')")
    assert (failed.status, failed.output) == (1, "before\n")
    assert "ValueError: wrong" in failed.errors
    assert commands.run(*shell, "import os; os.kill(os.getpid(), 9)").status == -9
    echoed = commands.run(*shell, "import json, sys; print(json.dumps(sys.stdin.read()))", stdin="typed\nin")
    assert json.loads(echoed.output) == "typed\nin"
