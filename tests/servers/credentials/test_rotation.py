"""A rotation killed halfway resumes, skips no row, and disturbs no reader or writer."""

import json
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.credentials import rotation
from servers.keyring import KEY_BYTES
from servers.keyring_file import use_next_key
from servers.models import ServerValue
from servers.registration.values import reveal
from tests.servers.credentials.half_way import killed_after
from tests.tools.prepared import DATABASE, ROOT, clean_environment, copy_database
from tests.tools.warm import Commands

pytestmark = [pytest.mark.integration, pytest.mark.deadline(400)]
ROWS = 150  # one batch and a half
FILL = f"""
from servers import crypto
from servers.models import Server, ServerValue
server = Server.objects.create(slug="s", name="S", transport="stdio", command="true", enabled=False)
rows = []
for number in range({ROWS}):
    row = ServerValue(server=server, kind="environment", name=f"V{{number}}", secret=True)
    row.sealed, row.key_id = crypto.seal(f"value-{{number}}", table="servers_servervalue", uid=row.uid, field="sealed")
    rows.append(row)
ServerValue.objects.bulk_create(rows)
"""
USE = """
import os, time
from servers import crypto
from servers.registration.values import reveal
from servers.models import ServerValue
count, place = 0, 0
print("using", flush=True)
while not os.path.exists(os.environ["STOP_FILE"]):
    rows = list(ServerValue.objects.filter(pk__gt=place).order_by("pk")[:40])
    place = rows[-1].pk if rows else 0
    for row in rows:
        expected = row.name.replace("V", "value-")
        assert reveal(row).reveal().startswith(expected), row.name
    if rows:
        row = rows[0]
        row.sealed, row.key_id = crypto.seal(
            row.name.replace("V", "value-") + "-anew", table="servers_servervalue", uid=row.uid, field="sealed"
        )
        row.save(update_fields=["sealed", "key_id"])
    count += len(rows)
    time.sleep(0.02)
print("used", count, flush=True)
"""
COUNT = """
import json
from servers.registration.values import reveal
from servers.models import ServerValue
keys = sorted(set(ServerValue.objects.values_list("key_id", flat=True)))
opened = [reveal(row).reveal() == f"value-{row.name[1:]}" or reveal(row).reveal().endswith("-anew")
          for row in ServerValue.objects.all()]
print(json.dumps({"keys": keys, "rows": len(opened), "right": all(opened)}))
"""


class Installation:
    def __init__(self, data_dir: Path) -> None:
        self.ring = data_dir / "keyring.json"
        self.env = clean_environment(MCPADMIN_DATA_DIR=str(data_dir), STOP_FILE=str(data_dir / "stop"))
        self.stop_file = data_dir / "stop"
        self.commands = Commands(self.env)

    def start(self, *command: str) -> "subprocess.Popen[str]":
        argv = [sys.executable, "manage.py", *command]
        return subprocess.Popen(
            argv, cwd=ROOT, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *command: str, ok: bool = True) -> str:
        done = self.commands.run(*command)
        assert (done.status == 0) is ok, done
        return done.output + done.errors

    def count(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.run("shell", "-v", "0", "-c", COUNT).splitlines()[-1])
        return found

    def keys(self) -> set[str]:
        return set(json.loads(self.ring.read_text())["keys"])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, Path, Path]]:
    """An installation with its data directory, and a copy of that directory."""
    data_dir, copy = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("copy") / "data"
    copy_database(data_dir / DATABASE)
    made = Installation(data_dir)
    made.run("shell", "-v", "0", "-c", FILL)
    shutil.copytree(data_dir, copy)
    yield made, data_dir, copy
    made.commands.close()


@pytest.fixture
def installation(filled: tuple[Installation, Path, Path]) -> Installation:
    made, data_dir, copy = filled
    shutil.rmtree(data_dir)  # between two commands no process uses it
    shutil.copytree(copy, data_dir)
    return made


def test_a_rotation_killed_half_way_is_finished_while_values_are_read_and_written(installation: Installation) -> None:
    old = installation.keys()
    user = installation.start("shell", "-v", "0", "-c", USE)
    assert user.stdout is not None
    assert user.stdout.readline() == "using\n"
    assert installation.commands.run(*killed_after(ROWS // 2)).status == -signal.SIGKILL
    both = installation.count()
    assert len(both["keys"]) == 2, "the kill came too late to find it half done"
    output = installation.run("rotate_keys")
    assert "New key" not in output, "what was begun is finished first"
    time.sleep(0.2)
    installation.stop_file.touch()
    said, _ = user.communicate(timeout=60)
    assert said.startswith("used "), said
    new = installation.keys() - old
    assert installation.count() == {"keys": sorted(new), "rows": ROWS, "right": True}
    assert f"Removed {', '.join(old)}" in installation.run("rotate_keys", "--retire")
    assert installation.keys() == new
    assert installation.count() == {"keys": sorted(new), "rows": ROWS, "right": True}
    assert installation.ring.stat().st_mode & 0o777 == 0o600


def test_a_row_that_does_not_open_keeps_its_key_and_is_named(installation: Installation) -> None:
    old = installation.keys()
    spoil = "from servers.models import ServerValue as V; V.objects.filter(name='V7').update(sealed=b'\\x02'+b'x'*90)"
    installation.run("shell", "-v", "0", "-c", spoil)
    output = installation.run("rotate_keys", "--retire", ok=False)
    assert "servers_servervalue" in output
    assert "changed or moved" in output
    assert old < installation.keys()


def test_a_key_is_prepared_for_other_machines_before_it_is_used(installation: Installation) -> None:
    old = installation.keys()
    installation.run("rotate_keys", "--prepare")
    prepared = installation.keys() - old
    assert installation.count()["keys"] == sorted(old)
    installation.run("rotate_keys")
    assert installation.count()["keys"] == sorted(prepared)


def test_a_prepared_key_is_used_also_by_a_rotation_that_removes_the_old_ones(installation: Installation) -> None:
    old = installation.keys()
    installation.run("rotate_keys", "--prepare")
    prepared = installation.keys() - old
    assert f"Removed {', '.join(old)}" in installation.run("rotate_keys", "--retire")
    assert installation.count() == {"keys": sorted(prepared), "rows": ROWS, "right": True}
    assert installation.keys() == prepared


def stop_here(renewed: int) -> None:
    raise KeyboardInterrupt(renewed)


@pytest.mark.usefixtures("on_postgres")
def test_a_rotation_that_was_cut_short_is_finished_on_postgresql(
    django_db_blocker: Any, settings: Any, tmp_path: Path
) -> None:
    settings.KEYRING_FILE = tmp_path / "ring.json"
    keys = {"k1": b64encode(b"1" * KEY_BYTES).decode()}
    settings.KEYRING_FILE.write_text(json.dumps({"current": "k1", "keys": keys}))
    with django_db_blocker.unblock():
        exec(FILL)  # noqa: S102  as the processes of the other tests do
        new = use_next_key(settings.KEYRING_FILE)
        with pytest.raises(KeyboardInterrupt):
            rotation.rotate(stop_here)
        assert rotation.left() == {"k1": ROWS - rotation.BATCH}
        rotation.rotate(settle=0)
        assert rotation.left() == {}
        values = {value.name: (value.key_id, reveal(value).reveal()) for value in ServerValue.objects.all()}
    assert values == {f"V{number}": (new, f"value-{number}") for number in range(ROWS)}
