"""`make test` and `make test-all`: all set-up, then the tests in three phases, then the reasons of skipped tests.

python tests/tools/run_tests.py [--all] [pytest arguments]

Tests with the marker `long` run with --all only. Up to three failed tests of a phase run once more, alone: many tests
start processes and wait for them, and one of thousands that loses a race on a busy machine says nothing about the
commit. What passes only then is listed at the end of the run, because it is a defect of the test or of the product.

A green run of all tests writes its date, commit and counts to tests/last_full_run.json, which is committed. Every other
run prints that record.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tests" / "tools"
NOTES = ROOT / "tests" / ".notes"
LAST_FULL_RUN = ROOT / "tests" / "last_full_run.json"
ALL = "--all"
NOTHING_COLLECTED = 5
TESTS_FAILED = 1
MOST_RUN_AGAIN = 3
# Parts and browser tests mostly wait, so several files run at once. Tests that kill or measure the whole product need
# the machine. Browser tests keep an event loop running in their main thread, which would break tests with asyncio.
THREE_FILES = ["-n", "3", "--dist", "loadfile"]
TWO_FILES = ["-n", "2", "--dist", "loadfile"]
SLOWEST = "--durations=30"
PHASES = {
    "parts": ("not browser and not up", THREE_FILES),
    "product": ("up and not browser", []),
    "browser": ("browser", TWO_FILES),
}


def set_up() -> int:
    subprocess.run(["/bin/sh", str(TOOLS / "setup_system.sh")], cwd=ROOT, check=False)
    return subprocess.run([sys.executable, str(TOOLS / "setup_peers.py")], cwd=ROOT, check=False).returncode


def selection(name: str, *, everything: bool) -> str:
    marks = PHASES[name][0]
    return marks if everything else f"({marks}) and not long"


def run_phase(name: str, arguments: list[str], *, everything: bool) -> tuple[int, list[str]]:
    """The status of pytest, and the tests that passed only when they ran again."""
    marks, ways = selection(name, everything=everything), PHASES[name][1]
    counts_of(name).unlink(missing_ok=True)
    failed_of(name).unlink(missing_ok=True)
    begin = time.monotonic()
    status = pytest("-m", marks, "--notes-as", f"skipped-{name}", SLOWEST, *ways, *arguments)
    failed = json.loads(failed_of(name).read_text()) if status == TESTS_FAILED else []
    passed_again: list[str] = []
    if 0 < len(failed) <= MOST_RUN_AGAIN:
        print(f"== {name}: {len(failed)} failed; once more, alone", flush=True)
        status = pytest(*failed)
        if status == 0:
            passed_again = failed
            counts = json.loads(counts_of(name).read_text())
            kept = {word: number for word, number in counts.items() if word not in ("failed", "error")}
            counts_of(name).write_text(json.dumps(kept | {"passed when run again": len(failed)}))
    word = "passed" if status in (0, NOTHING_COLLECTED) else "FAILED"
    print(f"== {name}: {word} in {time.monotonic() - begin:.0f} s", flush=True)
    return status, passed_again


def pytest(*arguments: str) -> int:
    # Each phase imports all tests, and each product that a test starts imports the whole product. Let Python write its
    # bytecode, so that both are compiled once.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def print_notes() -> None:
    notes = [line for file in sorted(NOTES.glob("*.txt")) for line in file.read_text().splitlines()]
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
    everything = ALL in arguments
    arguments = [argument for argument in arguments if argument != ALL]
    of = commit()
    if status := set_up():
        return status
    begin = time.monotonic()
    phases = {name: run_phase(name, arguments, everything=everything) for name in PHASES}
    results = {name: status for name, (status, _) in phases.items()}
    if all(result == NOTHING_COLLECTED for result in results.values()):
        print("No test matches.")
        return NOTHING_COLLECTED
    failed = [name for name, result in results.items() if result not in (0, NOTHING_COLLECTED)]
    print(f"{'FAILED: ' + ', '.join(failed) if failed else 'All tests passed'} ({time.monotonic() - begin:.0f} s).")
    if passed_again := [test for _, tests in phases.values() for test in tests]:
        print(f"Failed at first and passed when run again, to be mended ({len(passed_again)}):")
        for test in passed_again:
            print(f"  {test}")
    print_notes()
    if everything and not arguments and not failed:
        record_full_run(of)
    print(f"Last green run of all tests (make test-all): {last_full_run()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
