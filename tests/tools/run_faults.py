"""`make faults`: runs each tests/faults/run_*.py in a separate pytest, one after the other, except the soak.

python tests/tools/run_faults.py [parts of file names]

FAULT_SCALE scales the runs down, FAULT_SEED changes the random choices. Each scenario prints its sizes, seed and
counts.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APART = "run_soak.py"


def chosen(words: list[str]) -> list[Path]:
    files = sorted((ROOT / "tests" / "faults").glob("run_*.py"))
    return [file for file in files if (any(word in file.name for word in words) if words else file.name != APART)]


def run(file: Path) -> bool:
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-s", str(file)]
    passed = subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    print(f"== {file.stem}: {'passed' if passed else 'FAILED'} in {time.monotonic() - began:.0f} s", flush=True)
    return passed


def main(words: list[str]) -> int:
    files = chosen(words)
    if not files:
        print("No fault run matches.", file=sys.stderr)
        return 1
    began = time.monotonic()
    failed = [file.stem for file in files if not run(file)]  # run all of them, even after a failure
    print(
        f"{'FAILED: ' + ', '.join(failed) if failed else 'All fault runs passed'} ({time.monotonic() - began:.0f} s)."
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
