"""`make test`: all set-up, then the tests in three phases, then what had to be skipped.

python tests/tools/run_tests.py [pytest arguments]
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tests" / "tools"
NOTHING_COLLECTED = 5
# Parts mostly wait, so several files are tested at the same time; whoever starts the whole product needs the machine.
# Browser tests keep an event loop running in their main thread, which tests with asyncio would stumble over.
AT_ONCE = ["-n", "3", "--dist", "loadfile"]
PHASES = {
    "parts": ("not browser and not up", AT_ONCE),
    "product": ("up and not browser", []),
    "browser": ("browser", []),
}


def set_up() -> int:
    subprocess.run(["/bin/sh", str(TOOLS / "setup_system.sh")], cwd=ROOT, check=False)
    return subprocess.run([sys.executable, str(TOOLS / "setup_peers.py")], cwd=ROOT, check=False).returncode


def run_phase(name: str, arguments: list[str]) -> int:
    marks, ways = PHASES[name]
    command = [sys.executable, "-m", "pytest", "-m", marks, "--notes-as", f"skipped-{name}", *ways, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def print_notes() -> None:
    notes = [
        line for file in sorted((ROOT / "tests" / ".notes").glob("*.txt")) for line in file.read_text().splitlines()
    ]
    print(f"Skipped on this machine: {len(notes)} reasons" if notes else "Nothing was skipped.")
    for line in notes:
        print(f"  {line}")


def main(arguments: list[str]) -> int:
    if status := set_up():
        return status
    begin = time.monotonic()
    results = {name: run_phase(name, arguments) for name in PHASES}
    if all(result == NOTHING_COLLECTED for result in results.values()):
        print("No test matches.")
        return NOTHING_COLLECTED
    failed = [name for name, result in results.items() if result not in (0, NOTHING_COLLECTED)]
    print(f"{'FAILED: ' + ', '.join(failed) if failed else 'All tests passed'} ({time.monotonic() - begin:.0f} s).")
    print_notes()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
