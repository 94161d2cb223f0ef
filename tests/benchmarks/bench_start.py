"""From `make run` to the first page, the second time. Floor: one Python process that only loads Django and our apps."""

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

from tests.tools.stack import READY, ROOT, clean_environment

ROUNDS = 3
TIMEOUT = 120


def seconds_to_first_page(data_dir: Path) -> float:
    begin = time.monotonic()
    command = ["make", "--silent", "run", f"ARGS=--no-browser --port 0 --data-dir {data_dir}"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
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


def seconds_to_load_django(data_dir: Path) -> float:
    code = "import django; django.setup(); import mcpadmin.urls"
    env = clean_environment(MCPADMIN_DATA_DIR=str(data_dir), DJANGO_SETTINGS_MODULE="mcpadmin.settings")
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True, timeout=TIMEOUT)
    return time.monotonic() - begin


def main() -> None:
    data_dir = Path(tempfile.mkdtemp(prefix="mcpadmin-bench-"))
    try:
        first = seconds_to_first_page(data_dir)
        later = [seconds_to_first_page(data_dir) for _ in range(ROUNDS)]
        floor = statistics.median(seconds_to_load_django(data_dir) for _ in range(ROUNDS))
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)
    median = statistics.median(later)
    print(f"first start {first:.2f} s; later starts {', '.join(f'{s:.2f}' for s in later)} s")
    print(f"median {median:.2f} s (wanted: under 5 s), floor {floor:.2f} s, ratio {median / floor:.1f}")


if __name__ == "__main__":
    main()
