"""`make bench`: runs each tests/benchmarks/bench_*.py, one after the other.

python tests/tools/run_benchmarks.py [parts of file names]
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 1800
#: these download from the package registries
BY_NAME_ONLY = {"bench_first_start"}


def chosen(words: list[str]) -> list[Path]:
    files = sorted((ROOT / "tests" / "benchmarks").glob("bench_*.py"))
    if not words:
        return [file for file in files if file.stem not in BY_NAME_ONLY]
    return [file for file in files if any(word.replace("-", "_") in file.name for word in words)]


def run(file: Path) -> bool:
    print(f"== {file.stem}", flush=True)
    module = f"tests.benchmarks.{file.stem}"
    return subprocess.run([sys.executable, "-m", module], cwd=ROOT, timeout=TIMEOUT, check=False).returncode == 0


def main(words: list[str]) -> int:
    files = chosen(words)
    if not files:
        print("No benchmark matches.", file=sys.stderr)
        return 1
    results = [run(file) for file in files]  # run all of them, even after a failure
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
