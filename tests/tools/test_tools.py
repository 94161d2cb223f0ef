"""The test tools themselves work, so that a green run means something."""

import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from tests.tools import notes, run_checks
from tests.tools.scheduling import LONGEST, ByFileAndWorld
from tests.tools.stack import clean_environment
from tests.tools.valkey import answers

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.integration


def run_pytest(directory: Path, source: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a separate test file with our plugins but without Django."""
    (directory / "test_inner.py").write_text(source)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow:\n  up:\n")
    plugins = ["-p", "tests.tools.deadline", "-p", "tests.tools.notes", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(directory), *arguments, str(directory)]
    environment = clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env=environment)


def test_the_last_lines_say_what_was_skipped_and_why(tmp_path: Path) -> None:
    source = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_it(n): pytest.skip('no moon tonight')\n"
    assert "2 tests skipped: no moon tonight" in run_pytest(tmp_path, source).stdout


def test_a_test_that_waits_for_ever_fails_at_its_deadline_and_shows_where_it_stood(tmp_path: Path) -> None:
    source = (
        "import time\nimport tests.tools.deadline as d\nd.SECONDS = 1\n"
        "def test_it(): time.sleep(50)\ndef test_next(): pass\n"
    )
    done = run_pytest(tmp_path, source)
    assert "did not end within 1 s" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "most recent call first" in done.stdout  # the stack dump, as captured stderr


def test_a_step_that_takes_too_long_is_ended_and_the_deadline_of_its_test_counts_on(tmp_path: Path) -> None:
    source = (
        "import time\nimport pytest\nimport tests.tools.deadline as d\nd.SECONDS = 3\n"
        "def test_it():\n    with pytest.raises(TimeoutError), d.within(1):\n        time.sleep(50)\n"
        "    with d.within(20):\n        pass\n    time.sleep(50)\n"
    )
    done = run_pytest(tmp_path, source)
    assert "did not end within 3 s" in done.stdout


def test_a_run_that_is_told_to_end_stops_what_its_fixtures_started(tmp_path: Path) -> None:
    source = (
        "import os, pathlib, pytest, signal, time\nhere = pathlib.Path(__file__).parent\n"
        "@pytest.fixture(scope='session')\ndef thing():\n    yield\n    (here / 'stopped').touch()\n"
        "def test_it(thing):\n    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(50)\n"
    )
    run_pytest(tmp_path, source)
    assert (tmp_path / "stopped").exists()


def test_notes_are_kept_for_the_end_and_removed_when_there_is_nothing_to_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "NOTES", tmp_path / "notes")
    notes.write("a", ["one", "two"])
    notes.write("b", ["three"])
    notes.write("a", [])
    assert notes.read_all() == ["three"]


def test_all_checks_run_even_when_one_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {"bad": ["sh", "-c", "echo why; exit 3"], "good": ["true"]}
    monkeypatch.setattr(run_checks, "STEPS", steps)
    assert run_checks.main([]) == 1
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines() if line]
    assert ["good", "ok"] in lines
    bad = lines.index(["bad", "FAILED"])
    assert lines[bad + 1] == ["why"]


def test_the_deployment_check_sees_no_setting_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MCPADMIN_DEBUG", "REDIS_URL", "DATABASE_URL"):
        monkeypatch.setenv(name, "true")
    assert {"MCPADMIN_DEBUG", "REDIS_URL", "DATABASE_URL"} & run_checks.environment("/nowhere").keys() == set()


def test_the_fixture_valkey_is_a_real_one_that_answers(valkey: Path) -> None:
    assert answers(valkey)


def bootstrap(directory: Path, what: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run bootstrap.sh in a directory that looks like a fresh checkout, with locks that need nothing."""
    (directory / "mcpadmin").mkdir(exist_ok=True)
    script = directory / "mcpadmin" / "bootstrap.sh"
    script.write_text((ROOT / "mcpadmin" / "bootstrap.sh").read_text())
    for lock in ("requirements.lock", "requirements-dev.lock"):
        if not (directory / lock).exists():
            (directory / lock).write_text("# nothing\n")
    environment = clean_environment() | env
    return subprocess.run(["/bin/sh", str(script), what], capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.long
def test_a_fresh_checkout_gets_its_environment_once_and_a_changed_lock_is_installed_into_it(tmp_path: Path) -> None:
    first, second = bootstrap(tmp_path, "dev"), bootstrap(tmp_path, "dev")
    assert first.returncode == second.returncode == 0, first.stderr
    assert "Creating .venv" in first.stdout
    assert second.stdout == ""
    assert bootstrap(tmp_path, "run").stdout == ""  # the development lock includes all that running needs
    (tmp_path / "requirements.lock").write_text("# nothing, but otherwise\n")
    again = bootstrap(tmp_path, "run")
    assert "Installing requirements.lock" in again.stdout
    assert "Creating" not in again.stdout
    (packages,) = (tmp_path / ".venv" / "lib").glob("python3*")
    packages.rename(packages.with_name("python3.0"))  # of the version before an upgrade of the system
    upgraded = bootstrap(tmp_path, "run")
    assert "Creating .venv" in upgraded.stdout
    assert "Installing requirements.lock" in upgraded.stdout


def fake_python(directory: Path, body: str) -> str:
    """Return a PATH with this script as python3, and with sh and the tools it needs."""
    directory.mkdir()
    python = directory / "python3"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    for tool in ("dirname", "cmp", "cp", "sh"):
        (directory / tool).symlink_to(f"/usr/bin/{tool}")
    return str(directory)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            'case "$*" in *version_info*) exit 1;; esac; echo Python 3.9.2',
            "needs Python 3.11 or newer, this is Python 3.9.2",
        ),
        ('case "$*" in *ensurepip*) exit 1;; esac; exit 0', "apt install python3-venv"),
    ],
)
def test_a_python_that_will_not_do_is_one_clear_line_and_status_1(tmp_path: Path, body: str, words: str) -> None:
    path = fake_python(tmp_path / "bin", body)
    done = bootstrap(tmp_path, "run", PATH=path)
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_machine_without_python_is_told_what_to_install(tmp_path: Path) -> None:
    path = fake_python(tmp_path / "bin", "")
    os.unlink(f"{path}/python3")
    done = bootstrap(tmp_path, "run", PATH=path)
    assert (done.returncode, "apt install python3 python3-venv" in done.stderr) == (1, True)


def test_no_lock_names_a_registry() -> None:
    peers = ROOT / "tests" / "peers"
    locks = [*ROOT.glob("*.lock"), *peers.glob("*.lock")]
    assert len(locks) == 2 + len(list(peers.glob("*.in")))
    assert [lock.name for lock in locks if "://" in lock.read_text()] == []
    assert '"resolved"' not in (peers / "package-lock.json").read_text()


def test_what_takes_longest_is_given_out_first_and_exists() -> None:
    class Process:
        def send_runtest_some(self, indexes: list[int]) -> None:
            given.append(indexes[0])

    given, process = list[int](), Process()
    scheduler: Any = object.__new__(ByFileAndWorld)
    units = ["tests/test_many.py", LONGEST[1], "tests/test_few.py", LONGEST[0]]
    scheduler.workqueue = OrderedDict((unit, {f"{unit}::test_it": False}) for unit in units)
    scheduler.assigned_work, scheduler.registered_collections = {}, {process: [f"{unit}::test_it" for unit in units]}
    while scheduler.workqueue:
        scheduler._assign_work_unit(process)
    assert [units[index] for index in given] == [LONGEST[0], LONGEST[1], "tests/test_many.py", "tests/test_few.py"]
    assert [unit for unit in LONGEST if not (ROOT / unit).exists()] == []


def test_no_key_of_an_installation_is_part_of_the_repository() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    keys = {"secret_key", "keyring.json", "checkpoint_key.json"}
    assert [path for path in tracked.splitlines() if Path(path).name in keys] == []
