"""Measures `make run` until the first page on a second start, and the memory of all processes with an idle demo server.

The floor of the start: one Python process that only loads Django and our apps. All without rich, which structlog loads
where it is installed (3 MiB a process): the tools of developers bring it, an installation does not have it.
"""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

from tests.tools.stack import ADMIN, READY, ROOT, Stack, clean_environment, proportional_mib

ROUNDS = 3
WANTED_SECONDS, WANTED_MIB = 3.0, 250.0
#: housekeeping after the start is done by then
SETTLE_SECONDS = 10.0
DEMO = ROOT / "mcpadmin" / "demo_server"
TIMEOUT = 120


def installed(folder: Path, **extra: str) -> dict[str, str]:
    """The environment of an installation without the tools of developers."""
    (folder / "rich.py").write_text("raise ImportError\n")
    return clean_environment(PYTHONPATH=str(folder), **extra)


def seconds_to_first_page(data_dir: Path, env: dict[str, str]) -> float:
    begin = time.monotonic()
    command = ["make", "--silent", "run", f"ARGS=--no-browser --port 0 --data-dir {data_dir}"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        url = next(match[2] for line in process.stdout if (match := READY.search(line)))
        with urllib.request.urlopen(f"{url}/accounts/login/", timeout=TIMEOUT) as page:
            page.read()
        return time.monotonic() - begin
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=TIMEOUT)


def idle_memory(data_dir: Path, env: dict[str, str]) -> list[tuple[float, str]]:
    """Memory in MiB (shared pages count proportionally) and name of each process."""
    product = Stack(data_dir, env=env).start()
    try:
        product.create_admin()
        product.manage("register_server", "--user", ADMIN[0], "--name", "Idle", "--", sys.executable, str(DEMO))
        deadline = time.monotonic() + TIMEOUT
        while not product.rows("SELECT 1 FROM servers_definition"):
            assert time.monotonic() < deadline, product.output[-3000:]
            time.sleep(0.2)
        time.sleep(SETTLE_SECONDS)
        return sorted(((proportional_mib(one.pid), name_of(one)) for one in product.family()), reverse=True)
    finally:
        product.stop()


def name_of(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    words = {"up": "manage.py up", "web": "daphne", "worker": "mcpadmin.worker"}
    words |= {"valkey": "valkey-server", "orphan guard": "orphan_guard.py", "demo server": "demo_server"}
    return next((name for name, word in words.items() if word in line), line[:60])


def seconds_to_load_django(env: dict[str, str]) -> float:
    code = "import django; django.setup(); import mcpadmin.urls"
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True, timeout=TIMEOUT)
    return time.monotonic() - begin


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="mcpadmin-bench-"))
    data_dir, env = folder / "data", installed(folder)
    django = installed(folder, MCPADMIN_DATA_DIR=str(data_dir), DJANGO_SETTINGS_MODULE="mcpadmin.settings")
    try:
        first = seconds_to_first_page(data_dir, env)
        later = [seconds_to_first_page(data_dir, env) for _ in range(ROUNDS)]
        memory = idle_memory(data_dir, env)
        floor = statistics.median(seconds_to_load_django(django) for _ in range(ROUNDS))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    median = statistics.median(later)
    print(f"first start {first:.2f} s; later starts {', '.join(f'{s:.2f}' for s in later)} s")
    print(
        f"median {median:.2f} s (wanted: at most {WANTED_SECONDS:.0f} s), floor {floor:.2f} s, ratio {median / floor:.1f}"
    )
    print(", ".join(f"{name} {mib:.0f}" for mib, name in memory))
    print(f"idle memory {sum(mib for mib, _ in memory):.0f} MiB (wanted: at most {WANTED_MIB:.0f} MiB)")


if __name__ == "__main__":
    main()
