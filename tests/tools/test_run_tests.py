"""`make test` leaves out long tests and reports the last full run, which `make test-all` records."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.stack import ROOT, clean_environment

pytestmark = pytest.mark.integration
INI = "[pytest]\naddopts = -p xdist -p tests.tools.notes\nmarkers =\n  browser:\n  up:\n  long:\n"
QUICK = "import pytest\n\n@pytest.mark.up\ndef test_quick(): pass\n\n"
LONG = "@pytest.mark.long\n@pytest.mark.up\ndef test_deep(): pass\n\n"
SKIPPED = "@pytest.mark.browser\ndef test_seen(): pytest.skip('only Linux can confine')\n"
NOT_INSTALLED = "@pytest.mark.browser\ndef test_seen(): pytest.skip('Chromium is not installed (Debian: apt)')\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with the test tools, an empty set-up, and three tests."""
    tools = tmp_path / "tests" / "tools"
    tools.mkdir(parents=True)
    for name in ("__init__.py", "tools/__init__.py", "tools/notes.py", "tools/run_tests.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    runner = tools / "run_tests.py"
    alone = re.sub('"-n", "[0-9]"', '"-n", "0"', runner.read_text())  # three tests need no extra processes
    runner.write_text(alone.replace('["--record"]', "[]"))  # which is an option of a plugin that is not here
    for name in ("setup_system.sh", "setup_peers.py", "setup_prepared.py", "setup_bytecode.py"):
        (tools / name).touch()
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "tests" / "test_it.py").write_text(QUICK + LONG + SKIPPED)
    (tmp_path / ".gitignore").write_text("__pycache__\n.notes\n.pytest_cache\nlast_full_run.json\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")
    return tmp_path


def git(project: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=project, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "tests/tools/run_tests.py", *arguments]
    environment = clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")  # which takes most of the time of a small run
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=100, env=environment)


def last_line(done: "subprocess.CompletedProcess[str]") -> str:
    return done.stdout.splitlines()[-1]


@pytest.mark.long
def test_a_green_run_of_all_tests_is_kept_and_said_by_each_later_run(project: Path) -> None:
    all_of_it = run(project, "--all")
    assert all_of_it.returncode == 0, all_of_it.stdout
    kept = json.loads((project / "tests" / "last_full_run.json").read_text())
    commit = git(project, "rev-parse", "--short=12", "HEAD")
    assert kept == {"date": kept["date"], "commit": commit, "passed": 2, "skipped": 1}
    said = f"Last green run of all tests (make test-all): {kept['date']} on commit {commit}: 2 passed, 1 skipped"
    assert last_line(all_of_it) == said
    short = run(project)
    assert last_line(short) == said
    assert "1 passed, 2 deselected" in short.stdout, "the long one is left out"


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux has /proc/stat")
def test_a_run_says_how_long_the_processors_were_busy_and_idle(project: Path) -> None:
    said = run(project, "-k", "quick").stdout
    busy, idle = re.findall(r"processors of this machine were busy for (\d+) s and idle for (\d+) s", said)[0]
    assert int(busy) + int(idle) > 0


@pytest.mark.long
def test_a_run_that_fails_or_leaves_tests_out_is_not_a_full_run(project: Path) -> None:
    never = "Last green run of all tests (make test-all): never"
    assert last_line(run(project, "--all", "-k", "quick")) == never
    (project / "tests" / "test_bad.py").write_text("def test_bad(): assert False\n")
    bad = run(project, "--all")
    assert (bad.returncode, last_line(bad)) == (1, never)
    assert not (project / "tests" / "last_full_run.json").exists()


@pytest.mark.long
def test_a_test_that_passes_when_it_runs_again_does_not_fail_the_run_and_is_named(project: Path) -> None:
    unsteady = """
from pathlib import Path
RAN = Path(__file__).with_suffix(".ran")

def test_unsteady():
    again = RAN.exists()
    RAN.touch()
    assert again
"""
    (project / "tests" / "test_unsteady.py").write_text(unsteady)
    done = run(project, "--all")
    assert done.returncode == 0, done.stdout
    named = "Failed at first and passed when run again, to be mended (1):\n  tests/test_unsteady.py::test_unsteady\n"
    assert named in done.stdout
    kept = json.loads((project / "tests" / "last_full_run.json").read_text())
    assert (kept["passed"], kept["passed when run again"]) == (2, 1)


@pytest.mark.long
def test_a_test_that_is_skipped_when_it_runs_again_has_not_passed(project: Path) -> None:
    once = """
from pathlib import Path
import pytest
RAN = Path(__file__).with_suffix(".ran")

def test_once():
    if RAN.exists():
        pytest.skip("it ran before")
    RAN.touch()
    assert False
"""
    (project / "tests" / "test_once.py").write_text(once)
    done = run(project)
    assert done.returncode == 1, done.stdout
    assert "FAILED: parts" in done.stdout


def test_a_run_of_continuous_integration_fails_when_something_is_not_installed_and_tests_were_skipped(
    project: Path,
) -> None:
    (project / "tests" / "test_it.py").write_text(QUICK + NOT_INSTALLED)
    done = run(project, "--complete")
    assert done.returncode == 1
    assert "not installed:\n  1 test skipped: Chromium is not installed" in done.stdout


@pytest.mark.long
def test_what_is_not_installed_is_named_and_makes_no_full_run(project: Path) -> None:
    setup = 'mkdir -p tests/.notes; echo "set-up: apt-get could not install: strace" >tests/.notes/setup-system.txt\n'
    (project / "tests" / "tools" / "setup_system.sh").write_text(setup)
    done = run(project, "--all")
    assert done.returncode == 0
    assert "set-up: apt-get could not install: strace" in done.stdout
    assert not (project / "tests" / "last_full_run.json").exists()
    assert run(project, "--complete").returncode == 1
    (project / "tests" / "tools" / "setup_system.sh").write_text(": >tests/.notes/setup-system.txt\n")
    machine = run(project, "--complete")
    assert machine.returncode == 0, machine.stdout
    assert "1 test skipped: only Linux can confine" in machine.stdout


@pytest.mark.long
def test_the_lanes_run_side_by_side_and_each_phase_prints_its_report(project: Path) -> None:
    meeting = """
import time
from pathlib import Path
import pytest

@pytest.mark.parametrize("phase", ["parts", pytest.param("product", marks=pytest.mark.up),
                                   pytest.param("browser", marks=pytest.mark.browser)])
def test_meets_the_others(phase):
    here = Path(__file__).parent
    (here / f"{phase}.here").touch()
    deadline = time.monotonic() + 60
    while len(list(here.glob("*.here"))) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
"""
    (project / "tests" / "test_meeting.py").write_text(meeting)
    done = run(project)
    assert done.returncode == 0, done.stdout
    ends = re.findall(r"^== (\w+): passed in \d+ s \(\d+ s of CPU\)$", done.stdout, re.MULTILINE)
    assert sorted(ends) == ["browser", "host", "live", "parts", "product"]
    assert ends.index("browser") < ends.index("host"), "of one lane"
    assert {"parts", "product"} <= {line.split()[0] for line in done.stdout.splitlines() if line.endswith("[100%]")}
    assert done.stdout.count(" slowest ") == 3


def test_many_failures_do_not_run_again_and_a_phase_that_cannot_be_started_is_no_success(project: Path) -> None:
    bad = "import pytest\n@pytest.mark.parametrize('number', range(7))\ndef test_bad(number): assert False\n"
    (project / "tests" / "test_bad.py").write_text(bad)
    runner = project / "tests" / "tools" / "run_tests.py"
    started = "            process = self._process = pytest("
    text = runner.read_text()
    assert started in text
    runner.write_text(
        text.replace(started, f"            if self.name == 'live': raise OSError('no memory')\n{started}")
    )
    done = run(project)
    assert done.returncode == 1
    assert "once more" not in done.stdout
    assert "FAILED: live, parts" in done.stdout
