"""`manage.py` from its own process: which data directory a command uses."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.tools.prepared import ADMIN, DATABASE, ROOT, clean_environment, copy_database


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
