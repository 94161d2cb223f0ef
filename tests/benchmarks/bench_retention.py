"""Measures what the retention costs those who write: one process writes as calls do, another one trims old calls.

python -m tests.benchmarks.bench_retention [--calls N] [--writes N]

Fills a database with N old calls (and their payloads), measures how long a write on the path of a call takes, starts the
retention in a second process and measures the same until it ends. SQLite; with DATABASE_URL that database. No number
makes the run fail.
"""

import argparse
import os
import subprocess
import sys
import tempfile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=50_000)
    parser.add_argument("--writes", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {"MCPADMIN_DATA_DIR": folder, "DJANGO_SETTINGS_MODULE": "mcpadmin.settings"}
        command = [sys.executable, "-m", "tests.benchmarks.retention_cases", str(options.calls), str(options.writes)]
        subprocess.run(command, check=True, env={**environment, **os.environ})


if __name__ == "__main__":
    main()
