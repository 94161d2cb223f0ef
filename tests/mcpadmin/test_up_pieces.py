"""The pieces of `up` that need no product: lock, socket path, output, guard."""

import asyncio
import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mcpadmin.installation import ROOT
from mcpadmin.up import assets, bundles, database, orphan_guard, preflight, process, ready, supervisor, valkey
from mcpadmin.up.options import StartProblem
from mcpadmin.up.process import MAX_LINE, Child, Lines, Output, Part, clean, describe_exit
from mcpadmin.up.supervisor import PartSupervisor
from tests.tools.prepared import DATABASE, clean_environment, copy_database, copy_static_files


def test_a_second_holder_of_the_lock_is_told_who_holds_it(tmp_path: Path) -> None:
    held = preflight.acquire_lock(tmp_path)
    with pytest.raises(StartProblem, match=rf"already running in .* \(process {os.getpid()}\).*--data-dir"):
        preflight.acquire_lock(tmp_path)
    preflight.release_lock(tmp_path, held)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_left_by_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / preflight.LOCK).write_text("999999999\nhttp://127.0.0.1:1\n")
    held = preflight.acquire_lock(tmp_path)
    assert preflight.noted_url(tmp_path) == ""
    preflight.note_url(held, "http://127.0.0.1:9000")
    assert preflight.noted_url(tmp_path) == "http://127.0.0.1:9000"
    preflight.release_lock(tmp_path, held)


def test_a_lock_file_that_cannot_be_opened_is_explained(tmp_path: Path) -> None:
    (tmp_path / preflight.LOCK).mkdir()  # as one that belongs to root is for an ordinary user
    with pytest.raises(StartProblem, match=r"cannot be used \(Is a directory: .*up\.lock\)\. Make it writable"):
        preflight.acquire_lock(tmp_path)


@pytest.mark.parametrize("name", ["x" * 120, "with space", "ünïcode", "question?mark"])
def test_where_the_path_fits_no_socket_or_url_a_short_one_is_chosen_and_found_again(tmp_path: Path, name: str) -> None:
    valkey_dir = tmp_path / name
    valkey_dir.mkdir()
    chosen = valkey.choose_socket(valkey_dir)
    assert valkey.socket_fits(chosen)
    assert chosen.parent.stat().st_mode & 0o777 == 0o700
    assert valkey.recorded_socket(valkey_dir) == chosen
    valkey.forget_socket(valkey_dir)
    assert not chosen.parent.exists()
    assert list(valkey_dir.iterdir()) == []


def test_a_usual_path_is_used_as_it_is(tmp_path: Path) -> None:
    short = Path("/srv/mcpadmin/valkey")
    assert valkey.recorded_socket(short) == short / "valkey.sock"


@pytest.mark.parametrize("mark", preflight.MARKS)
def test_what_any_start_leaves_makes_a_folder_a_data_directory(tmp_path: Path, mark: str) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / mark).parent.mkdir(exist_ok=True)
    (tmp_path / mark).touch()
    preflight.refuse_foreign(tmp_path)


def test_restored_folders_of_servers_make_a_folder_a_data_directory(tmp_path: Path) -> None:
    servers = tmp_path / "servers"
    servers.mkdir()
    (servers / "lost+found").mkdir()
    preflight.refuse_foreign(tmp_path)  # a separate volume
    (tmp_path / "notes.txt").touch()
    with pytest.raises(StartProblem, match="nothing in it belongs to mcpadmin"):
        preflight.refuse_foreign(tmp_path)
    for name in (f"{uuid4()}", f"draft-{uuid4()}"):
        (servers / name).mkdir()
    preflight.refuse_foreign(tmp_path)
    (servers / "web1.conf").touch()
    with pytest.raises(StartProblem, match="nothing in it belongs to mcpadmin"):
        preflight.refuse_foreign(tmp_path)


def test_a_new_an_empty_and_a_freshly_mounted_folder_are_taken(tmp_path: Path) -> None:
    preflight.refuse_foreign(tmp_path / "new")
    preflight.refuse_foreign(tmp_path)
    (tmp_path / "lost+found").mkdir()
    preflight.refuse_foreign(tmp_path)


def test_a_folder_called_beat_loses_only_an_old_schedule(tmp_path: Path) -> None:
    (tmp_path / "beat").mkdir()
    for name in ("schedule", "schedule.db", "song.wav"):
        (tmp_path / "beat" / name).touch()
    preflight.tighten(tmp_path)
    assert [path.name for path in (tmp_path / "beat").iterdir()] == ["song.wav"]


def test_a_key_file_that_can_be_read_but_not_closed_is_a_warning_if_others_can_read_it(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = settings.KEYRING_FILE = tmp_path / "keyring.json"
    ring.write_text("{}")

    def refused(path: Path, mode: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    ring.chmod(0o444)
    with monkeypatch.context() as mounted:
        mounted.setattr(Path, "chmod", refused)
        words = f"Other users have access to {ring} (mode 444), and its mode cannot be changed (Read-only file system)."
        assert database.check_installation(tmp_path) == [words]
    ring.chmod(0o440)
    with monkeypatch.context() as mounted:
        mounted.setattr(Path, "chmod", refused)
        assert database.check_installation(tmp_path) == []
    assert database.check_installation(tmp_path) == []
    assert ring.stat().st_mode & 0o777 == 0o600


def test_a_busy_port_names_another() -> None:
    taken = preflight.listen("127.0.0.1", 0)
    port = taken.getsockname()[1]
    with pytest.raises(StartProblem, match=f"port {port} on 127.0.0.1 is in use.*--port {port + 1}"):
        preflight.listen("127.0.0.1", port)
    taken.close()


def test_the_reason_why_it_cannot_run_is_a_line_of_json_like_all_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert supervisor.main(["--port", "99999"]) == 1
    words = capsys.readouterr().err
    monkeypatch.setenv("MCPADMIN_LOG_FORMAT", "JSON")
    assert supervisor.main(["--port", "99999"]) == 1
    said = json.loads(capsys.readouterr().err)
    assert (said["level"], said["part"], f"{said['message']}\n") == ("error", "up", words)


def test_ctrl_c_before_anything_runs_ends_it_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor, "supervise", interrupted)
    assert supervisor.main([]) == 130


def test_a_host_that_is_not_ours_is_explained() -> None:
    with pytest.raises(StartProblem, match=r"192\.0\.2\.1 is not an address of this machine"):
        preflight.listen("192.0.2.1", 0)


def test_a_host_that_is_no_name_is_explained() -> None:
    with pytest.raises(StartProblem, match=r"the host '127\.\.0\.1' has no address on this machine"):
        preflight.listen("127..0.1", 0)


def test_nothing_a_part_prints_can_steer_the_terminal() -> None:
    assert clean("\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\r\n") == "red ]0;title bell\n"


def test_a_line_without_end_is_cut_and_memory_stays_bounded() -> None:
    lines = Lines()
    shown = [line for _ in range(64) for line in lines.feed(b"x" * 4096)]
    assert all(len(line) <= MAX_LINE + 4096 for line in shown)
    assert len(lines.finish()) <= 1


def test_the_last_words_of_a_part_are_kept_even_without_a_newline() -> None:
    lines = Lines(keep=2)
    lines.feed(b"one\ntwo\nthree")
    lines.finish()
    assert list(lines.last) == ["two", "three"]


@pytest.mark.parametrize(
    ("status", "words"), [(3, "exited with status 3"), (-9, "killed by SIGKILL"), (-64, "killed by SIGRTMAX")]
)
def test_an_end_is_described_in_words(status: int, words: str) -> None:
    assert describe_exit(status) == words


def start_guard(tmp_path: Path, told: int, held: int) -> "subprocess.Popen[bytes]":
    (tmp_path / "valkey").mkdir()
    (tmp_path / "valkey" / "valkey.sock").touch()
    argv = [
        sys.executable,
        "-I",
        "-S",
        orphan_guard.__file__,
        str(tmp_path / preflight.LOCK),
        str(tmp_path / "valkey"),
        str(held),
    ]
    return subprocess.Popen(argv, stdin=told, pass_fds=(held,))


@pytest.mark.integration
def test_when_up_is_killed_its_guard_ends_the_parts_and_removes_the_files(tmp_path: Path) -> None:
    held = preflight.acquire_lock(tmp_path)
    told, tell = os.pipe()
    watching = start_guard(tmp_path, told, held)
    part = subprocess.Popen(["sleep", "60"], start_new_session=True)
    os.write(tell, f"+{part.pid}\n".encode())
    os.close(held)
    os.close(tell)
    assert part.wait(10) == -signal.SIGKILL
    assert watching.wait(10) == 0
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["valkey"]
    os.close(told)


@pytest.mark.integration
def test_after_an_orderly_stop_the_guard_touches_nothing(tmp_path: Path) -> None:
    held = preflight.acquire_lock(tmp_path)
    told, tell = os.pipe()
    watching = start_guard(tmp_path, told, held)
    part = subprocess.Popen(["sleep", "60"], start_new_session=True)
    os.write(tell, f"+{part.pid}\ndone\n".encode())
    os.close(tell)
    assert watching.wait(10) == 0
    assert part.poll() is None
    assert (tmp_path / "valkey" / "valkey.sock").exists()
    part.kill()
    part.wait(10)
    preflight.release_lock(tmp_path, held)
    os.close(told)


@pytest.mark.integration
def test_a_guard_that_is_killed_while_no_process_is_free_gets_its_successor_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = preflight.acquire_lock(tmp_path)
    guard = orphan_guard.OrphanGuard(tmp_path / preflight.LOCK, tmp_path / "valkey", lock)
    part = subprocess.Popen(["sleep", "60"], start_new_session=True)
    killed = guard.pid
    os.kill(killed, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1])
    with monkeypatch.context() as full:
        full.setattr(subprocess, "Popen", Forks(BlockingIOError(11, "Resource temporarily unavailable")))
        guard.revive(status)
        guard.started(part.pid)
    guard.restore()
    assert guard.pid != killed
    os.close(lock)
    os.close(guard._pipe)  # as when `up` is killed
    assert part.wait(10) == -signal.SIGKILL
    assert guard._popen.wait(10) == 0


@pytest.mark.integration
def test_a_new_up_waits_until_the_guard_of_the_killed_one_is_done(tmp_path: Path) -> None:
    """The guard shares the lock of the killed `up`, so acquiring it waits for the guard's clean-up."""
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl,os,sys,time;"
            f"f=os.open({str(tmp_path / preflight.LOCK)!r},os.O_RDWR|os.O_CREAT);fcntl.flock(f,fcntl.LOCK_EX);"
            "os.write(f,b'999999999');print('held',flush=True);time.sleep(1.5)",
        ],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    held = preflight.acquire_lock(tmp_path)
    assert holder.poll() is not None or holder.wait(5) == 0
    preflight.release_lock(tmp_path, held)


def test_static_files_are_collected_once_and_pages_import_the_shell_by_hash(settings: object, tmp_path: Path) -> None:
    settings.STATIC_ROOT = tmp_path / "static"
    assert assets.collect() > 0
    manifest = json.loads((settings.STATIC_ROOT / assets.MANIFEST).read_text())["paths"]
    page = (settings.STATIC_ROOT / manifest["js/servers.js"]).read_text()
    assert Path(manifest["js/app.js"]).name in page
    assert (settings.STATIC_ROOT / f"{manifest['js/app.js']}.br").exists()
    assert assets.collect() == 0


def test_a_collection_cut_short_is_done_again(
    settings: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(found: dict[str, Any], draft: Path) -> None:
        draft.mkdir()
        (draft / assets.MANIFEST).write_text("{}")

    monkeypatch.setattr(assets, "_build", build)
    settings.STATIC_ROOT = tmp_path / "static"
    settings.STATIC_ROOT.mkdir()
    (settings.STATIC_ROOT / assets.FINGERPRINT).write_text("half")
    assert assets.collect() > 0
    assert (settings.STATIC_ROOT / assets.MANIFEST).exists()
    assert assets.collect() == 0


WRITE_BUNDLES = (
    "import sys; from pathlib import Path; from mcpadmin.up import bundles; bundles.write(Path(sys.argv[1]))"
)


def test_no_bundle_is_read_or_written_in_the_encoding_of_the_locale(tmp_path: Path) -> None:
    copy = shutil.copytree(ROOT / "static", tmp_path / "static")
    strict = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    subprocess.run([sys.executable, *strict, "-c", WRITE_BUNDLES, copy], cwd=ROOT, env=clean_environment(), check=True)
    assert (copy / bundles.BUNDLE).exists()


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("localedef"), reason="needs localedef")
def test_bundles_are_the_same_in_a_locale_whose_encoding_reads_no_utf_8(tmp_path: Path) -> None:
    locale = tmp_path / "zh_CN.GB18030"
    subprocess.run(["localedef", "-f", "GB18030", "-i", "zh_CN", locale], capture_output=True)
    if not locale.exists():
        pytest.skip("needs the sources of locales")
    here, there = (shutil.copytree(ROOT / "static", tmp_path / name) for name in ("here", "there"))
    bundles.write(here)
    chinese = clean_environment(LOCPATH=str(tmp_path), LC_ALL=locale.name)
    subprocess.run([sys.executable, "-c", WRITE_BUNDLES, there], cwd=ROOT, env=chinese, check=True)
    for path in (here / bundles.BUNDLE, *(here / "js").glob("*.js")):
        assert (there / path.relative_to(here)).read_bytes() == path.read_bytes(), path


def at_the_gate(reading: int) -> "subprocess.Popen[bytes]":
    code = "from mcpadmin.up import ready; ready.wait_until_prepared(); print('served')"
    env = {**os.environ, ready.PREPARED_VARIABLE: str(reading)}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=env, cwd=ROOT, pass_fds=(reading,), stdout=subprocess.PIPE
    )


def test_parts_wait_for_the_preparation_and_one_started_later_does_not_wait_again() -> None:
    reading, writing = os.pipe()
    waiting = [at_the_gate(reading) for _ in range(2)]
    with pytest.raises(subprocess.TimeoutExpired):
        waiting[0].wait(0.5)
    os.write(writing, b"\n")
    waiting.append(at_the_gate(reading))
    assert [part.communicate(timeout=30)[0] for part in waiting] == [b"served\n"] * 3
    os.close(reading)
    os.close(writing)


def test_a_part_that_waits_for_the_preparation_ends_with_up() -> None:
    reading, writing = os.pipe()
    part = at_the_gate(reading)
    os.close(reading)
    os.close(writing)
    assert part.communicate(timeout=30)[0] == b""
    assert part.returncode == 1


class Said:
    """What `up` prints."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def say(self, text: str, part: str = "up", level: str = "info") -> None:
        self.lines.append(text)
        self._more.set()

    async def heard(self, words: str) -> None:
        while not any(words in line for line in self.lines):
            self._more.clear()
            await self._more.wait()


class Forks:
    """Starts processes, except where its list names the problem of the system."""

    def __init__(self, *problems: OSError | None) -> None:
        self.problems, self.pids, self._spawn = list(problems), list[int](), process.spawn

    def __call__(self, *what: Any, **how: Any) -> "subprocess.Popen[bytes]":
        if problem := self.problems.pop(0) if self.problems else None:
            raise problem
        started = self._spawn(*what, **how)
        self.pids.append(started.pid)
        return started


SLEEPER = Part("worker", "worker", (sys.executable, "-Sc", "import time; print('up'); time.sleep(600)"), 1.0)


def kill(child: Child) -> None:
    os.kill(child.pid, signal.SIGKILL)
    child.ended(os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]))


async def answers() -> None:
    return None


@pytest.mark.parametrize("problem", [BlockingIOError(11, "Resource temporarily unavailable"), OSError(12, "No memory")])
async def test_a_part_that_died_is_started_again_although_the_system_refuses_a_process_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, problem: OSError
) -> None:
    forks, said = Forks(None, problem, problem), Said()
    monkeypatch.setattr(process, "spawn", forks)
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.001)
    part = Part("worker", "worker", SLEEPER.argv, 1.0, probe=answers)
    kept = PartSupervisor(part, {}, said, lambda pid: None)
    kept.start()
    await kept.first_ready
    assert kept.child is not None
    kill(kept.child)
    await said.heard("worker ready again")
    words = f"worker could not be started ({problem.strerror}); restarting it in"
    assert [line.startswith(words) for line in said.lines] == [False, False, True, True, False]
    assert len(forks.pids) == 2
    kill(kept.child)
    await kept.stop(1.0, asyncio.Event())


async def test_as_json_what_goes_wrong_has_a_level_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.001)
    reading, writing = os.pipe()
    output, started = Output(writing, as_json=True), list[int]()
    output.say("warning: requests from other machines are refused")
    output.say("warning: not a word of ours", "worker")
    kept = PartSupervisor(Part("worker", "worker", SLEEPER.argv, 1.0, probe=answers), {}, output, started.append)
    kept.start()
    await kept.first_ready
    assert kept.child is not None
    kill(kept.child)
    while len(started) < 2:  # noqa: ASYNC110 - nothing tells of a start
        await asyncio.sleep(0.001)
    kill(kept.child)
    await kept.stop(1.0, asyncio.Event())
    output.close()
    os.close(writing)
    lines = [json.loads(line) for line in os.read(reading, 65_536).splitlines()]
    os.close(reading)
    told = [(line["level"], line["message"].partition(" in ")[0]) for line in lines]
    assert told[:2] == [
        ("warning", "warning: requests from other machines are refused"),
        ("info", "warning: not a word of ours"),
    ]
    assert ("info", "worker ready") in told
    assert ("warning", "worker killed by SIGKILL; restarting it") in told


async def test_a_part_that_fails_all_night_is_still_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    forks, said = Forks(None, *[OSError(28, "No space left on device")] * 1_100), Said()
    monkeypatch.setattr(process, "spawn", forks)
    monkeypatch.setattr(supervisor, "CEILING", 0.0)
    part = Part("worker", "worker", SLEEPER.argv, 1.0, probe=answers)
    kept = PartSupervisor(part, {}, said, lambda pid: None)
    kept.start()
    await kept.first_ready
    assert kept.child is not None
    kill(kept.child)
    while len(forks.pids) < 2 and "is not restarted" not in said.lines[-1]:  # noqa: ASYNC110 - either may come
        await asyncio.sleep(0)
    assert "restarting it" in said.lines[-1]
    kill(kept.child)
    await kept.stop(1.0, asyncio.Event())


async def test_a_part_that_can_never_be_started_ends_the_start_and_repairs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repaired: list[int] = []
    monkeypatch.setattr(process, "spawn", Forks(*[OSError(12, "No memory")] * 9))
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.001)
    part = Part("valkey", "valkey", SLEEPER.argv, 1.0, probe=answers, repair=lambda: str(repaired.append(1)))
    kept = PartSupervisor(part, {}, Said(), lambda pid: None)
    kept.start()
    with pytest.raises(StartProblem, match=r"valkey could not be started \(No memory\) 4 times"):
        await kept.first_ready
    assert not repaired


async def test_a_refused_start_leaves_no_descriptor_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(secrets: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(process.hardening, "handed_over", none_left)
    before = set(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match="Too many open files"):
        Child(SLEEPER, {}, Said())
    await asyncio.sleep(0)  # the loop reads the end of the pipe that announces a part
    await asyncio.sleep(0)
    assert set(os.listdir("/dev/fd")) == before


def test_a_start_makes_up_for_one_that_was_ended_after_the_last_migration(tmp_path: Path) -> None:
    """Before the triggers of the audit log, and the permissions of new models, were made."""
    path = tmp_path / DATABASE
    copy_database(path)
    copy_static_files(tmp_path)
    free = "SELECT max(id) FROM auth_permission WHERE id NOT IN (SELECT permission_id FROM auth_group_permissions)"
    permissions = "SELECT codename FROM auth_permission ORDER BY codename"
    triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'audit_event_%' ORDER BY name"
    with closing(sqlite3.connect(path)) as database:
        before = [database.execute(one).fetchall() for one in (permissions, triggers)]
        for (name,) in before[1]:
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM auth_permission WHERE id = ?", database.execute(free).fetchone())
        database.commit()
    prepare = [sys.executable, "manage.py", "prepare"]
    subprocess.run(prepare, cwd=ROOT, env=clean_environment(MCPADMIN_DATA_DIR=str(tmp_path)), check=True)
    with closing(sqlite3.connect(path)) as database:
        assert [database.execute(one).fetchall() for one in (permissions, triggers)] == before
    assert before[1]


BESIDE_A_SCRIPT = """
import asyncio, os, subprocess, sys
from contextlib import suppress
from types import SimpleNamespace

from mcpadmin.up import process, supervisor

def lives(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False

async def main():
    process.become_subreaper()
    supervisor.Children(SimpleNamespace(pid=0, restore=lambda: None), lambda part, pid: None)
    part = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!"], stdout=subprocess.PIPE, start_new_session=True)
    orphan = int(part.stdout.readline())
    async with asyncio.timeout(20):
        while lives(orphan):
            await asyncio.sleep(0.01)
    print([lives(pid) for pid in left])

left = [int(pid) for pid in sys.argv[1:]]
try:
    asyncio.run(main())
finally:
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
"""


AS_FIRST_PROCESS = """
import asyncio, os, signal, subprocess, sys, time
from pathlib import Path
from types import SimpleNamespace

from mcpadmin.up import init, process, supervisor

def sleeping(seconds):
    found = (path.read_text().split("\\0") for path in Path("/proc").glob("[0-9]*/cmdline"))
    return ["sleep", str(seconds), ""] in found

async def until(answer):
    async with asyncio.timeout(20):
        while not answer():
            await asyncio.sleep(0.01)

async def main():
    process.become_subreaper()
    guard = SimpleNamespace(pid=0, restore=lambda: None, ended=lambda pid: None)
    children = supervisor.Children(guard, lambda part, pid: None)
    await until(lambda: sleeping(61))
    part = subprocess.Popen(["sh", "-c", "sleep 62 & sleep 1"], start_new_session=True)
    children._jobs[part.pid] = SimpleNamespace(ended=lambda status: None)
    await until(lambda: sleeping(62))
    await until(lambda: not sleeping(62))
    print(os.getpid() == 1, sleeping(61), flush=True)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sys.exit, 7)
    os.kill(1, signal.SIGTERM)
    await asyncio.sleep(20)

# as a person does who enters the container: it becomes an orphan later
subprocess.Popen(["sh", "-c", "sh -c 'sleep 0.5; sleep 61 &' &"], start_new_session=True)
init.run_below_init()
supervisor.SWEEP_SECONDS = 0.1
asyncio.run(main())
"""
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_as_the_first_process_of_a_container_up_kills_orphans_of_its_parts_alone_and_gets_its_signals() -> None:
    if subprocess.run([*CONTAINER, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to make a PID namespace")
    words = [*CONTAINER, sys.executable, "-c", AS_FIRST_PROCESS]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("False True\n", 7), done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans are found in /proc")
def test_what_the_start_script_left_running_lives_while_orphans_of_parts_are_killed() -> None:
    """A script such as `exec > >(tee log)`, which then becomes `up` by exec."""
    script = 'sleep 60 >&- & one=$!; setsid sleep 60 >&- & exec "$0" -c "$1" $one $!'
    words = ["sh", "-c", script, sys.executable, BESIDE_A_SCRIPT]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[True, True]\n"
