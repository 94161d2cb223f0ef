"""`make check`: runs every static check, two at a time, and prints its name and duration. All run even when one fails.

python tests/tools/run_checks.py [names of steps]
"""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
MANAGE = [sys.executable, "manage.py"]
STEPS: dict[str, list[str]] = {
    "mypy": [str(BIN / "mypy")],  # first, because it takes as long as all others together
    "ruff": [str(BIN / "ruff"), "check", "--quiet", "."],
    "format": [str(BIN / "ruff"), "format", "--check", "--quiet", "."],
    "imports": [str(BIN / "lint-imports")],
    "migrations": [*MANAGE, "makemigrations", "--check", "--dry-run"],
    "deploy": [*MANAGE, "check", "--deploy", "--fail-level", "WARNING"],
    "templates": [str(BIN / "djlint"), "templates", "--lint", "--quiet"],
    "words": [sys.executable, "tests/tools/page_words.py"],
    "template-format": [str(BIN / "djlint"), "templates", "--check", "--quiet"],
}
TIMEOUT = 600


def environment(data_dir: str) -> dict[str, str]:
    """The environment of a deployment behind TLS, whatever the developer's shell exports."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MCPADMIN_", "DJANGO_"))}
    for name in ("REDIS_URL", "DATABASE_URL"):
        kept.pop(name, None)
    return kept | {
        "MCPADMIN_DATA_DIR": data_dir,
        "MCPADMIN_PUBLIC_URL": "https://example.test",
        "MCPADMIN_TRUSTED_PROXIES": "1",
    }


def run_step(name: str, env: dict[str, str]) -> tuple[bool, str]:
    """Whether it succeeded, and the lines to print."""
    begin = time.monotonic()
    done = subprocess.run(
        STEPS[name], cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT
    )
    succeeded = done.returncode == 0
    line = f"{name:<16} {'ok' if succeeded else 'FAILED':<7} {time.monotonic() - begin:5.1f} s"
    return succeeded, line if succeeded else f"{line}\n{done.stdout}"


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in STEPS]:
        print(f"no such step: {', '.join(unknown)}; there are {', '.join(STEPS)}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="mcpadmin-check-") as data_dir:
        env = environment(data_dir)
        with ThreadPoolExecutor(max_workers=2) as pool:
            running = [pool.submit(run_step, name, env) for name in names or STEPS]
            for step in as_completed(running):
                print(step.result()[1], flush=True)
    return 0 if all(step.result()[0] for step in running) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
