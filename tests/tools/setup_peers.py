"""Installs the peers that tests talk to: npm packages and one Python environment for each SDK, all from lock files.

Safe to run at any time and in parallel. Does nothing when everything matches the locks. With --all also those that only
tests with the marker `long` and benchmarks talk to. --npm: the npm packages alone, for which any Python will do.

    python tests/tools/setup_peers.py [--all] [--npm]
"""

import compileall
import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

PEERS = Path(__file__).resolve().parents[1] / "peers"
ENVIRONMENTS = ("sdk2", "sdk1", "sdk1_8")
ENVIRONMENTS_OF_LONG_TESTS = ("fastmcp", "bridges", "sdk1_12", "sdk1_9", "sdk1_2")
NPM = (PEERS, PEERS.parent / "conformance")
NPM_OF_LONG_TESTS = (PEERS / "long",)
NOTES = PEERS.parent / ".notes" / "setup-peers.txt"
TIMEOUT = 600
SIDE_BY_SIDE = 3


@contextmanager
def only_one(what: str) -> Iterator[None]:
    with open(PEERS / f".setup-of-{what}", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(*files: Path) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(file.read_bytes())
    return total.hexdigest()


def run(*command: str | Path) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=PEERS, capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(words)}` failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def uv() -> Path | None:
    """The dev environment's uv, which is several times faster than pip. pip is always available."""
    beside = Path(sys.executable).parent / "uv"
    return beside if beside.exists() else None


def build(venv: Path, lock: Path, tool: Path | None) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    python = venv / "bin" / "python"
    if tool is None:
        run(sys.executable, "-m", "venv", venv)
        run(python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", lock)
        return
    run(tool, "venv", "--quiet", "--python", sys.executable, venv)
    # A confined peer cannot write its bytecode: without this each start would compile the SDK.
    run(tool, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, "--require-hashes", "-r", lock)


def set_up_environment(name: str) -> None:
    lock, venv = PEERS / f"{name}.lock", PEERS / f".venv-{name}"
    stamp, wanted = venv / ".lock-digest", digest(lock)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"peers: environment {name}", flush=True)
    try:
        build(venv, lock, uv())
    except RuntimeError:
        if uv() is None:
            raise
        build(venv, lock, None)  # pip reads its own configuration (mirrors, proxies), which uv ignores
    stamp.write_text(wanted)


def set_up_npm(folders: Iterable[Path]) -> str:
    """Return the reason why the installation was impossible, or "" after success."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return "npm or node is not installed, so nothing is tested against npm servers and by the conformance suite"
    with only_one("npm"):
        for folder in folders:
            stamp, wanted = (
                folder / "node_modules/.lock-digest",
                digest(folder / "package.json", folder / "package-lock.json"),
            )
            if not (stamp.exists() and stamp.read_text() == wanted):
                print(f"peers: npm packages of {folder.name}", flush=True)
                run(npm, "ci", "--prefix", folder, "--no-audit", "--no-fund")
                stamp.write_text(wanted)
    return ""


def note(problem: str) -> None:
    NOTES.parent.mkdir(exist_ok=True)
    if problem:
        NOTES.write_text(f"set-up: {problem}\n")
    else:
        NOTES.unlink(missing_ok=True)


def main(arguments: list[str]) -> int:
    environments, npm_folders = ENVIRONMENTS, NPM
    if "--npm" in arguments:
        environments = ()
    elif "--all" in arguments:
        environments += ENVIRONMENTS_OF_LONG_TESTS
        npm_folders += NPM_OF_LONG_TESTS
    try:
        with ThreadPoolExecutor(max_workers=SIDE_BY_SIDE) as pool:
            npm = pool.submit(set_up_npm, npm_folders)
            with only_one("environments"):
                list(pool.map(set_up_environment, environments))
            note(npm.result())
        compileall.compile_dir(PEERS, maxlevels=0, quiet=1)
    except (RuntimeError, subprocess.TimeoutExpired) as problem:
        print(f"peers: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
