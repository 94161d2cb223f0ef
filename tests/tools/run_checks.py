"""`make check`: runs every static check and prints its name and duration. All run even when one fails.

python tests/tools/run_checks.py [names of steps]
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
MANAGE = [sys.executable, "manage.py"]
STEPS: dict[str, list[str]] = {
    "ruff": [str(BIN / "ruff"), "check", "--quiet", "."],
    "format": [str(BIN / "ruff"), "format", "--check", "--quiet", "."],
    "mypy": [str(BIN / "mypy")],
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


def run_step(name: str, env: dict[str, str]) -> bool:
    begin = time.monotonic()
    done = subprocess.run(
        STEPS[name], cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT
    )
    word = "ok" if done.returncode == 0 else "FAILED"
    print(f"{name:<16} {word:<7} {time.monotonic() - begin:5.1f} s", flush=True)
    if done.returncode:
        print(done.stdout, flush=True)
    return done.returncode == 0


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in STEPS]:
        print(f"no such step: {', '.join(unknown)}; there are {', '.join(STEPS)}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="mcpadmin-check-") as data_dir:
        env = environment(data_dir)
        results = [run_step(name, env) for name in names or STEPS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
