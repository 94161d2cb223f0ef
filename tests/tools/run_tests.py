"""`make test` and `make test-all`: all set-up, then the tests in phases, three of them side by side, then the reasons of
skipped tests.

python tests/tools/run_tests.py [--all] [--complete] [pytest arguments]

The progress of each phase is printed while it runs, and its report when it ends, with its wall-clock and CPU time.
Tests with the marker `long` run with --all only. Up to six failed tests of a phase run once more, alone: many tests
start processes and wait for them, and one of thousands that loses a race on a busy machine says nothing about the
commit. What passes only then is listed at the end of the run, because it is a defect of the test or of the product.

With --complete the run fails when something is not installed that tests need: otherwise whole phases could be skipped,
and the run be green. What the machine itself cannot do (an ordinary user, a kernel without namespaces) is only named.

A green run of all tests writes its date, commit and counts to tests/last_full_run.json, which is committed. Every other
run prints that record.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tests" / "tools"
NOTES = ROOT / "tests" / ".notes"
LAST_FULL_RUN = ROOT / "tests" / "last_full_run.json"
STAT = Path("/proc/stat")
ALL, COMPLETE = "--all", "--complete"
NOTHING_COLLECTED = 5
TESTS_FAILED = 1
NOT_RUN = -1
MOST_RUN_AGAIN = 6
MOST_SECONDS_OF_A_LATE_READER = 5
#: in the notes: of the set-up, and the reasons of tests that were skipped
NOT_INSTALLED = re.compile(r"^set-up: |\binstalled\b|\bmissing\b")
PROGRESS = re.compile(r"\[ *\d+%\]\s*$")
SLOWEST = "--durations=30"
BY_FILE = ["--dist", "loadfile"]
AGAIN = ["--record"]
#: The folders of tests/ whose tests start a product or a browser; tests/conftest.py checks it. Each process of a phase
#: collects all tests of that phase, so a phase leaves out the folders that hold none.
WITH_PRODUCT = ("benchmarks", "canary", "e2e", "faults", "mcpadmin", "sessions/agents", "tools")
WITH_BROWSER = ("e2e", "kit", "screenshots", "tools")


def leave_out(folders: Iterable[str], *, of: Path = ROOT / "tests", files: bool = False) -> list[str]:
    """The options that leave out all other folders of tests/, and with `files` the test files that stand beside them."""
    kept = [ROOT / "tests" / folder for folder in folders]
    options = []
    for path in sorted(of.iterdir()):
        if path in kept:
            continue
        if path.is_dir() and any(folder.is_relative_to(path) for folder in kept):
            options += leave_out(folders, of=path, files=True)
        elif path.is_dir() or (files and path.match("test_*.py")):
            options.append(f"--ignore={path}")
    return options


# Browser tests are separate because they keep an event loop running in their main thread, which breaks tests with
# asyncio; product tests because they are few and take long; those of the session host and of live pages (with what is
# beside them here) to keep the lanes below equally long.
NEITHER = "not browser and not up"
HOST = ("sessions/host", "sessions/subscriptions", "sessions/mcp/hostile")
LIVE = ("sessions/live", "conformance", "interop")
PHASES = {
    "product": ("up and not browser", ["-n", "1", *leave_out(WITH_PRODUCT)]),
    "browser": ("browser", ["-n", "2", *leave_out(WITH_BROWSER)]),
    "host": (NEITHER, ["-n", "2", *leave_out(HOST, files=True)]),
    "live": (NEITHER, ["-n", "1", *leave_out(LIVE, files=True)]),
    "parts": (NEITHER, ["-n", "2", *(f"--ignore={ROOT / 'tests' / folder}" for folder in ("e2e", *HOST, *LIVE))]),
}
# The lanes run side by side, the phases of a lane one after the other, and all lanes end at about the same time. Two
# processors are busy with five processes. More of them take more CPU time for the same tests, and what waits for its
# turn runs into limits. Equal priorities, for the same reason: at a lower one, a phase hardly moves while the others
# run, and its tests fail.
LANES = (("product", "live"), ("browser", "host"), ("parts",))


def processor_seconds() -> tuple[float, float] | None:
    """(busy, idle) of all processors since the machine started. The CPU time of a phase lacks the renderers of Chromium,
    which are children of a process of Chromium."""
    try:
        ticks = [int(number) for number in STAT.read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:  # not Linux
        return None
    idle = sum(ticks[3:5])  # also those that wait for a disk
    per_second = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - idle) / per_second, idle / per_second


def print_processor_seconds(before: tuple[float, float] | None) -> None:
    if before is not None and (after := processor_seconds()) is not None:
        busy, idle = after[0] - before[0], after[1] - before[1]
        print(f"The processors of this machine were busy for {busy:.0f} s and idle for {idle:.0f} s.", flush=True)


def set_up(*, everything: bool) -> int:
    options = [ALL] if everything else []
    system = subprocess.Popen(["/bin/sh", str(TOOLS / "setup_system.sh"), *options], cwd=ROOT)
    peers = subprocess.Popen([sys.executable, str(TOOLS / "setup_peers.py"), *options], cwd=ROOT)
    bytecode = subprocess.Popen([sys.executable, "-m", "tests.tools.setup_bytecode"], cwd=ROOT)
    prepared = subprocess.Popen([sys.executable, "-m", "tests.tools.setup_prepared"], cwd=ROOT)
    status = system.wait()  # it installs PostgreSQL
    cluster = subprocess.Popen([sys.executable, "-m", "tests.tools.setup_prepared", "postgres"], cwd=ROOT)
    bytecode.wait()  # without it the tests only take longer
    return peers.wait() or prepared.wait() or cluster.wait() or status


def selection(name: str, *, everything: bool) -> str:
    marks = PHASES[name][0]
    return marks if everything else f"({marks}) and not long"


class Phase:
    """One run of pytest, in its own process. Its progress is printed at once, its report when it ends."""

    one_report_at_a_time = threading.Lock()

    def __init__(self, name: str, arguments: list[str], *, everything: bool) -> None:
        marks, ways = selection(name, everything=everything), PHASES[name][1]
        counts_of(name).unlink(missing_ok=True)
        failed_of(name).unlink(missing_ok=True)
        (NOTES / f"skipped-{name}-again.txt").unlink(missing_ok=True)
        self.name, self.status = name, NOT_RUN
        self.passed_again: list[str] = []
        self._command = ["-m", marks, "--notes-as", f"skipped-{name}", SLOWEST, *BY_FILE, *ways, *arguments]
        self._report: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._ended, self._starting = False, threading.Lock()

    def run(self) -> None:
        """Until its end."""
        begin = time.monotonic()
        with self._starting:
            if self._ended:
                return
            process = self._process = pytest(*self._command, captured=True)
        reader = threading.Thread(target=self._read, args=[process.stdout], daemon=True)
        reader.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = self.status = os.waitstatus_to_exitcode(status)
        reader.join(MOST_SECONDS_OF_A_LATE_READER)  # a process that a test left behind may keep the pipe open
        word = "passed" if self.status in (0, NOTHING_COLLECTED) else "FAILED"
        seconds, cpu = time.monotonic() - begin, used.ru_utime + used.ru_stime
        with self.one_report_at_a_time:
            print("".join(self._report), end="")
            print(f"== {self.name}: {word} in {seconds:.0f} s ({cpu:.0f} s of CPU)", flush=True)

    def _read(self, output: Iterable[str]) -> None:
        for line in output:
            if PROGRESS.search(line):
                print(f"{self.name:<8} {line}", end="", flush=True)
            else:
                self._report.append(line)

    def end(self) -> None:
        with self._starting:
            self._ended = True
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def run_failed_again(self) -> None:
        """If only a few tests failed: run them alone, and keep the names of those that pass then."""
        failed = json.loads(failed_of(self.name).read_text()) if self.status == TESTS_FAILED else []
        if not 0 < len(failed) <= MOST_RUN_AGAIN:
            return
        print(f"== {self.name}: {len(failed)} failed; once more, alone", flush=True)
        self.status = pytest("--notes-as", f"skipped-{self.name}-again", *AGAIN, *failed).wait()
        if self.status == 0:
            again = json.loads(counts_of(f"{self.name}-again").read_text())
            if again.get("passed") != len(failed):  # what was skipped now has not passed
                self.status = TESTS_FAILED
                return
            self.passed_again = failed
            counts = json.loads(counts_of(self.name).read_text())
            kept = {word: number for word, number in counts.items() if word not in ("failed", "error")}
            counts_of(self.name).write_text(json.dumps(kept | {"passed when run again": len(failed)}))


def run_lanes(phases: dict[str, Phase]) -> None:
    """Wait for all of them. Ends them on Ctrl-C and SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def run(lane: tuple[str, ...]) -> None:
        for name in lane:
            phases[name].run()

    waiting = [threading.Thread(target=run, args=[lane]) for lane in LANES]
    for thread in waiting:
        thread.start()
    try:
        for thread in waiting:
            thread.join()
    except KeyboardInterrupt:
        for phase in phases.values():
            phase.end()
        raise


def pytest(*arguments: str, captured: bool = False) -> "subprocess.Popen[str]":
    # Each phase imports all tests, and each product that a test starts imports the whole product. Let Python write its
    # bytecode, so that both are compiled once.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "pytest", *arguments]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if captured else {}
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, errors="replace", **output)


def read_notes() -> list[str]:
    return [line for file in sorted(NOTES.glob("*.txt")) for line in file.read_text().splitlines()]


def print_notes(notes: list[str]) -> None:
    print(f"Skipped on this machine: {len(notes)} reasons" if notes else "Nothing was skipped.")
    for line in notes:
        print(f"  {line}")


def counts_of(name: str) -> Path:
    """Where the plugin `notes` stores the counts of a phase."""
    return NOTES / f"skipped-{name}.json"


def failed_of(name: str) -> Path:
    """Where the plugin `notes` stores the ids of a phase's failed tests."""
    return NOTES / f"skipped-{name}.failed.json"


def commit() -> str:
    """The commit, marked when there are uncommitted changes; "unknown" outside of git."""
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty= with uncommitted changes"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def record_full_run(of: str) -> None:
    counts: Counter[str] = Counter()
    for name in PHASES:
        counts.update(json.loads(counts_of(name).read_text()))
    run = {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "commit": of} | dict(sorted(counts.items()))
    LAST_FULL_RUN.write_text(json.dumps(run, indent=2) + "\n")


def last_full_run() -> str:
    try:
        run = json.loads(LAST_FULL_RUN.read_text())
    except FileNotFoundError:
        return "never"
    counts = ", ".join(f"{number} {word}" for word, number in run.items() if isinstance(number, int))
    return f"{run['date']} on commit {run['commit']}: {counts}"


def main(arguments: list[str]) -> int:
    everything, complete = ALL in arguments, COMPLETE in arguments
    arguments = [argument for argument in arguments if argument not in (ALL, COMPLETE)]
    of = commit()
    if status := set_up(everything=everything):
        return status
    begin = time.monotonic()
    phases = {name: Phase(name, arguments, everything=everything) for name in PHASES}
    before = processor_seconds()
    run_lanes(phases)
    print_processor_seconds(before)
    for phase in phases.values():
        phase.run_failed_again()
    results = {name: phase.status for name, phase in phases.items()}
    if all(result == NOTHING_COLLECTED for result in results.values()):
        print("No test matches.")
        return NOTHING_COLLECTED
    failed = [name for name, result in results.items() if result not in (0, NOTHING_COLLECTED)]
    print(f"{'FAILED: ' + ', '.join(failed) if failed else 'All tests passed'} ({time.monotonic() - begin:.0f} s).")
    if passed_again := [test for phase in phases.values() for test in phase.passed_again]:
        print(f"Failed at first and passed when run again, to be mended ({len(passed_again)}):")
        for test in passed_again:
            print(f"  {test}")
    notes = read_notes()
    print_notes(notes)
    not_installed = [line for line in notes if NOT_INSTALLED.search(line)]
    if not_installed and complete:
        print("FAILED: not all tests have run, because something is not installed:")
        for line in not_installed:
            print(f"  {line}")
    if everything and not arguments and not failed and not not_installed:
        record_full_run(of)
    print(f"Last green run of all tests (make test-all): {last_full_run()}")
    return 1 if failed or (complete and not_installed) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
