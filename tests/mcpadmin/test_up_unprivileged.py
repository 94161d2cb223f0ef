"""`manage.py up` as root gives root up. Real processes, started by root in a data directory that every user can reach."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mcpadmin.up import unprivileged
from sessions.mcp.transports.stdio import tiers
from tests.sessions.mcp.transports.robbery import INTERPRETER
from tests.tools import open_checkout, open_homes
from tests.tools.prepared import ROOT, clean_environment, prepare
from tests.tools.stack import Stack

pytestmark = [
    pytest.mark.up,
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="root must be given up by root, on Linux"),
]
OWN = unprivileged.FIRST_SERVER_USER - 1
SERVER = ROOT / "tests" / "sessions" / "mcp" / "transports" / "stdio_scripts" / "server.py"


@pytest.fixture(scope="module", autouse=True)
def reachable_code() -> None:
    open_checkout.require()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where every user may enter, unlike below /tmp/pytest-of-root."""
    made = Path(tempfile.mkdtemp(prefix="mcpadmin-up-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def inside(folder: Path) -> tuple[str, ...]:
    found = open_homes.inside(folder / "empty")
    if found is None:
        pytest.skip("other users cannot reach the interpreter")
    return found


@pytest.fixture(scope="module")
def product(folder: Path, inside: tuple[str, ...]) -> Iterator[Stack]:
    """An installation that ran as root before."""
    data_dir = prepare(folder / "data", administrator=True)
    (data_dir / "servers").mkdir()
    (data_dir / "servers" / "left").mkdir()
    (data_dir / "servers" / "left" / "home").mkdir()
    os.chown(data_dir / "servers" / "left" / "home", OWN + 5, OWN + 5)
    made = Stack(data_dir, "--port", "0", env={"MCPADMIN_USER": ""}, inside=inside)
    yield made.start()
    made.stop()


def eventually(found: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not found():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def ready(product: Stack, name: str) -> bool:
    sql = "SELECT s.state FROM mcp_sessions_mcpsession s JOIN servers_server r ON r.id = s.server_id WHERE r.name = ?"
    return [row[0] for row in product.rows(sql, name)] == ["ready"]


def failures(product: Stack) -> list[tuple[str, ...]]:
    return [tuple(row) for row in product.rows("SELECT state, fault_detail, stderr_tail FROM mcp_sessions_mcpsession")]


def register(product: Stack, name: str, code: str, **more: list[str]) -> None:
    granted = {"readable_paths": [str(SERVER.parent)], **more}
    product.shell(
        "from django.contrib.auth import get_user_model\n"
        "from servers.audit.record import Actor\n"
        "from servers.registration.registering import Registration, register\n"
        "user = get_user_model().objects.get()\n"
        f"data = Registration(name={name!r}, transport='stdio', command={INTERPRETER!r}, arguments=['-I', '-c', {code!r}], **{granted!r})\n"
        "register(Actor.of_user(user), user, data)"
    )


def served(code: str = "") -> str:
    return f"{code}\nimport runpy, sys; sys.argv = [{str(SERVER)!r}]; runpy.run_path(sys.argv[0], run_name='__main__')"


def test_nothing_runs_as_root_and_an_installation_of_root_is_handed_over(product: Stack) -> None:
    up = psutil.Process(product.process.pid)
    parts = [up, *up.children(recursive=True)]
    assert {process.uids().real for process in parts} == {OWN}
    assert {process.uids().effective for process in parts} == {OWN}
    assert len(parts) > 4
    data = product.data_dir
    assert {path.lstat().st_uid for path in (data, *data.iterdir(), data / "servers" / "left")} == {OWN}
    assert (data / "servers" / "left" / "home").stat().st_uid == OWN + 5
    assert f"the data directory {data} belonged to root and now belongs to user {OWN}" in product.output
    for process in parts:
        command = " ".join(process.cmdline())
        if "mcpadmin.web" in command or "valkey-server" in command:
            assert {int(_status(process.pid, name), 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {0}
    namespaces = {os.readlink(f"/proc/{process.pid}/ns/user") for process in parts}
    assert len(namespaces) == 1
    assert namespaces != {os.readlink("/proc/self/ns/user")}


def _status(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def test_a_server_keeps_a_user_of_its_own_and_ends_with_its_worker(product: Stack) -> None:
    code = "import os; open(os.environ['HOME'] + '/pid', 'w').write('x')"
    register(product, "Own", served(code))
    assert eventually(lambda: ready(product, "Own")), failures(product)
    marks = list((product.data_dir / "servers").glob("*/home/pid"))
    user = marks[0].stat().st_uid
    assert user >= unprivileged.FIRST_SERVER_USER
    up = psutil.Process(product.process.pid)
    of_server = [p for p in up.children(recursive=True) if _user(p) == user]
    worker = next(p for p in up.children() if "mcpadmin.worker" in p.cmdline())
    assert of_server
    worker.kill()
    assert eventually(lambda: not any(_runs(p) for p in of_server))
    assert eventually(lambda: any(_user(p) == user for p in up.children(recursive=True))), failures(product)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two
        return False


def _user(process: psutil.Process) -> int:
    try:
        return process.uids().real
    except psutil.Error:
        return -1


def test_a_server_that_is_granted_files_of_mcpadmins_user_can_use_them(product: Stack, folder: Path) -> None:
    given = folder / "given"
    given.mkdir(mode=0o700)
    os.chown(given, OWN, OWN)
    register(product, "Writer", served(f"open({str(given / 'made')!r}, 'w').write('x')"), writable_paths=[str(given)])
    assert eventually(lambda: ready(product, "Writer")), failures(product)
    assert (given / "made").stat().st_uid == OWN


def test_a_grant_that_mcpadmins_user_cannot_reach_is_named(product: Stack, folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    (closed / "inner").mkdir()
    register(product, "Closed", served(), readable_paths=[str(closed / "inner")])
    words = f"but mcpadmin runs as user {OWN}, who has no access to it"
    sql = "SELECT count(*) FROM mcp_sessions_mcpsession WHERE fault_detail LIKE ?"
    assert eventually(lambda: product.rows(sql, f"%{words}%")[0][0] == 1)


@pytest.mark.long
def test_a_killed_up_leaves_nothing_behind_and_the_next_start_finds_its_own_files(product: Stack) -> None:
    up = psutil.Process(product.process.pid)
    parts = [up, *up.children(recursive=True)]
    up.kill()
    product.process.wait()
    assert eventually(lambda: not any(_runs(p) for p in parts))
    product.lines.clear()
    product.start()
    assert f"running as user {OWN} instead of root" in product.output
    assert "belonged to root" not in product.output
    assert {path.lstat().st_uid for path in product.data_dir.iterdir()} == {OWN}


def test_a_taken_over_worker_gets_no_further_than_mcpadmins_user(folder: Path, inside: tuple[str, ...]) -> None:
    secret = folder / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    victim = subprocess.Popen(["sleep", "60"], env={})
    command = [
        *inside,
        sys.executable,
        "-m",
        "tests.mcpadmin.escaping",
        str(folder / "escaping"),
        str(secret),
        str(victim.pid),
    ]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        got = json.loads(done.stdout)
        assert [name for name, success in got.items() if success] == []
        assert len(got) == 27
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()
    assert secret.read_text() == "of root"
    assert (folder / "escaping" / "program").stat().st_uid == OWN


def tried(inside: tuple[str, ...], data_dir: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*inside, sys.executable, "manage.py", "up", "--no-browser", "--port", "0", "--data-dir", str(data_dir)]
    return subprocess.run(
        [*command, *options],
        cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_user_that_does_not_exist_is_refused_with_the_remedy(folder: Path, inside: tuple[str, ...]) -> None:
    done = tried(inside, folder / "none", "--user", "nosuchuser")
    assert done.returncode == 1
    assert "there is no user 'nosuchuser'. Create one (useradd --system mcpadmin)" in done.stderr


def test_a_named_user_that_cannot_run_it_is_refused_with_the_reason(folder: Path, inside: tuple[str, ...]) -> None:
    (folder / "private").mkdir(mode=0o700)
    done = tried(inside, folder / "private" / "data", "--user", str(OWN))
    assert done.returncode == 1
    assert f"cannot run as user {OWN}: it has no permission to enter {folder}/private" in done.stderr
    assert not list((folder / "private" / "data").iterdir())


def test_a_folder_of_something_else_is_refused_and_keeps_its_owner(folder: Path, inside: tuple[str, ...]) -> None:
    foreign = folder / "foreign"
    (foreign / "static").mkdir(parents=True)
    (foreign / "static" / "page.css").write_text("x")
    done = tried(inside, foreign)
    assert done.returncode == 1
    assert f"{foreign} is not empty, and nothing in it belongs to mcpadmin" in done.stderr
    assert {path.lstat().st_uid for path in (foreign, *foreign.rglob("*"))} == {0}
    assert (foreign / "static" / "page.css").read_text() == "x"


def test_what_root_restored_into_the_directory_of_another_user_is_named_with_the_remedy(
    folder: Path, inside: tuple[str, ...]
) -> None:
    data = prepare(folder / "restored")
    database, ring, notes = (data / name for name in ("mcpadmin.sqlite3", "keyring.json", "copy.sqlite3"))
    for path in {data, *data.rglob("*")} - {database}:
        os.chown(path, OWN, OWN)
    ring.write_text("{}")
    for path, mode in ((database, 0o644), (ring, 0o600), (notes, 0o600)):
        path.touch()
        path.chmod(mode)
    done = tried(inside, data)
    assert done.returncode == 1
    assert f"run chown {OWN}:{OWN} {database} {ring}" in done.stderr
    assert {path.stat().st_uid for path in (database, ring, notes)} == {0}
    for path in (database, ring):
        os.chown(path, OWN, OWN)
    unprivileged._require_own(data, unprivileged.User(OWN, OWN, "", ""))


def test_a_key_file_that_is_not_there_yet_is_in_reach_where_the_user_can_create_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, user = folder / "keys", unprivileged.User(OWN, OWN, "", "")
    keys.mkdir(mode=0o700)
    monkeypatch.setenv("MCPADMIN_CHECKPOINT_KEY_FILE", str(keys / "later" / "ck.json"))

    def found() -> str:
        unprivileged.become(user)
        return " ".join(unprivileged._out_of_reach(folder / "data"))

    words = f"no permission to read or create {keys}/later/ck.json (MCPADMIN_CHECKPOINT_KEY_FILE)"
    assert words in unprivileged._answer(found)
    os.chown(keys, OWN, OWN)
    assert "ck.json" not in unprivileged._answer(found)


def test_files_outside_that_the_user_cannot_write_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, data = unprivileged.User(OWN, OWN, "", ""), folder / "data"
    statements, archive = folder / "statements.jsonl", folder / "archive"
    statements.touch(0o600)
    archive.mkdir(mode=0o755)
    monkeypatch.setenv("MCPADMIN_CHECKPOINT_FILE", str(statements))
    monkeypatch.setenv("MCPADMIN_EXPORT_DIRECTORIES", f"{archive}, {data}/exported")
    assert list(unprivileged._unwritable(user, data)) == [
        f"warning: user {OWN} has no permission to write to {statements} (MCPADMIN_CHECKPOINT_FILE)",
        f"warning: user {OWN} has no permission to write to {archive} (MCPADMIN_EXPORT_DIRECTORIES)",
    ]
    for path in (statements, archive):
        os.chown(path, OWN, OWN)
    assert list(unprivileged._unwritable(user, data)) == []


def test_a_command_that_gives_root_up_keeps_the_default_data_directory_of_root(
    folder: Path, inside: tuple[str, ...]
) -> None:
    data = prepare(folder / "of_its_owner")
    for path in (data, *data.rglob("*")):
        os.chown(path, OWN, OWN)
    shown = "import os; from django.conf import settings; print(settings.DATA_DIR, os.geteuid())"
    code = (
        "import os; from pathlib import Path; from mcpadmin import installation\n"
        f"installation.default_data_dir = lambda: Path('/nowhere' if os.geteuid() else {str(data)!r})\n"
        "from mcpadmin.command_line import managing\n"
        f"managing.run(['mcpadmin', 'shell', '--no-imports', '-c', {shown!r}])"
    )
    command = [*inside, sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(data), str(OWN)], done.stderr


def test_another_user_than_root_can_become_none(folder: Path) -> None:
    code = "from pathlib import Path; from mcpadmin.up.unprivileged import drop; drop(Path('/'), 'root')"
    done = subprocess.run(
        ["setpriv", "--reuid", "12345", "--clear-groups", INTERPRETER, "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "only root can switch to user root, and this process runs as user ID 12345" in done.stderr


def test_handing_over_follows_no_link_and_leaves_what_servers_own(folder: Path) -> None:
    outside, top = folder / "outside", folder / "top"
    outside.write_text("x")
    for path in (top, top / "servers", top / "servers" / "a"):
        path.mkdir()
    (top / "link").symlink_to(outside)
    (top / "servers" / "a" / "of_root").write_text("x")
    os.chown(top / "servers" / "a", OWN + 9, OWN + 9)
    unprivileged._give(top, unprivileged.User(OWN, OWN, "", ""))
    assert outside.stat().st_uid == 0
    assert (top / "link").lstat().st_uid == OWN
    assert (top / "servers" / "a").stat().st_uid == OWN + 9
    assert (top / "servers" / "a" / "of_root").stat().st_uid == 0


def test_both_sides_mean_the_same_users() -> None:
    assert (unprivileged.FIRST_SERVER_USER, unprivileged.SERVER_USERS) == (tiers._FIRST_USER, tiers._USERS)
