"""Days of calls with a limit of age and limits of size: whether the sizes hold, and what the retention costs those who
write meanwhile.

python -m tests.benchmarks.bench_retention [--days N] [--hours-a-day H] [--per-minute N] [--writes N] [--minutes M] [--database sqlite|postgresql]

The clock is simulated, all else is real: each day's calls, with contents, attempts, events and words in the index, are
written in bulk, then the retention runs once, in a second process, while writes as on the path of a call are measured.
`--hours-a-day 24` is the whole month: 43 million calls at 1,000 a minute, some hours of work. With fewer hours each day
holds as many calls as come in that time, and the limits are those of a few such days. No number makes the run fail.
"""

import argparse
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from tests.tools.postgres import cluster
from tests.tools.prepared import ROOT, clean_environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--hours-a-day", type=float, default=1.0)
    parser.add_argument("--per-minute", type=int, default=1_000)
    parser.add_argument("--writes", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=60.0, help="ends with the day in which they are over")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    options = parser.parse_args()
    words = [options.days, options.hours_a_day, options.per_minute, options.writes, options.minutes]
    with (
        tempfile.TemporaryDirectory(prefix="mcpadmin-bench-") as folder,
        cluster() if options.database == "postgresql" else nullcontext("") as url,
    ):
        environment = clean_environment(
            MCPADMIN_DATA_DIR=str(Path(folder)),
            DJANGO_SETTINGS_MODULE="mcpadmin.settings",
            **({"DATABASE_URL": url} if url else {}),
        )
        command = [sys.executable, "-m", "tests.benchmarks.retention_cases", *map(str, words)]
        subprocess.run(command, cwd=ROOT, check=True, env=environment)


if __name__ == "__main__":
    main()
