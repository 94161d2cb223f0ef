"""Measures what the retention costs those who write: one process writes as calls do, another one trims old calls.

python -m tests.benchmarks.bench_retention [--calls N] [--writes N]

Fills a database with N old calls (and their payloads), measures how long a write on the path of a call takes, starts the
retention in a second process and measures the same until it ends. SQLite; with DATABASE_URL that database. No number
makes the run fail.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

PACE_SECONDS = 0.004


def prepare(folder: Path) -> None:
    os.environ.setdefault("MCPADMIN_DATA_DIR", str(folder))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcpadmin.settings")
    import django  # noqa: PLC0415  after the environment

    django.setup()


def fill(calls: int) -> Any:
    from django.utils import timezone  # noqa: PLC0415

    from tests.sessions.host.make import make_session  # noqa: PLC0415
    from tests.sessions.retention.months import make_calls  # noqa: PLC0415

    session = make_session("tools")
    begin = timezone.now() - timedelta(days=60)
    for start in range(0, calls, 2_000):
        make_calls(session, begin + timedelta(minutes=start // 1000), min(2_000, calls - start), timedelta(minutes=2))
    return session


def write_once() -> float:
    """What a call's intent writes: a payload and an event."""
    from servers.audit import payloads  # noqa: PLC0415
    from servers.audit.record import SYSTEM, Event  # noqa: PLC0415
    from servers.audit.writer import writer  # noqa: PLC0415
    from servers.enums import AuditAction, AuditOutcome, PayloadKind  # noqa: PLC0415

    began = time.perf_counter()
    writer().submit_and_wait(
        lambda: payloads.store(PayloadKind.ARGUMENTS, '{"text":"hello"}'),
        lambda row: [Event(AuditAction.CALL_REQUEST, AuditOutcome.PENDING, SYSTEM, digests={"arguments": row.digest})],
        timeout=10,
    )
    return time.perf_counter() - began


def measure(more: Any) -> list[float]:
    found = []
    while more(len(found)):
        found.append(1000 * write_once())
        time.sleep(PACE_SECONDS)
    return found


def described(name: str, found: list[float]) -> str:
    ordered = sorted(found)
    quantile = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.95, 0.99)]
    return f"{name:<22}{len(found):>8} writes  " + "  ".join(
        f"{label} {value:6.1f} ms"
        for label, value in zip(("p50", "p95", "p99", "max"), [*quantile, ordered[-1]], strict=True)
    )


def trim() -> None:
    from sessions.enums import StoredKind  # noqa: PLC0415
    from sessions.models import RetentionLimit  # noqa: PLC0415
    from sessions.retention import job, trimming  # noqa: PLC0415

    batches: list[float] = []
    timed = trimming.timed

    def counted(*arguments: Any) -> Any:
        found = timed(*arguments)
        batches.append(1000 * found[0])
        return found

    trimming.timed = counted
    RetentionLimit.objects.update_or_create(kind=StoredKind.CALLS, defaults={"days": 30})
    began = time.perf_counter()
    print(job.run(_progress()).detail, f"{time.perf_counter() - began:.1f} s")
    ordered = sorted(batches)
    print(f"{len(batches)} batches, p50 {ordered[len(batches) // 2]:.1f} ms, longest {ordered[-3:]} ms")


def _progress() -> Any:
    """Rests as the progress of a background job does."""
    from servers.jobs.running import LONGEST_PAUSE_SECONDS, REST  # noqa: PLC0415

    last = [time.monotonic()]

    def progress(done: int, total: int | None = None) -> None:
        time.sleep(min(LONGEST_PAUSE_SECONDS, REST * (time.monotonic() - last[0])))
        last[0] = time.monotonic()

    return progress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=50_000)
    parser.add_argument("--writes", type=int, default=2_000)
    parser.add_argument("--trim", type=Path)
    options = parser.parse_args()
    if options.trim is not None:
        prepare(options.trim)
        trim()
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        from django.core.management import call_command  # noqa: PLC0415

        call_command("migrate", verbosity=0, interactive=False)
        began = time.perf_counter()
        fill(options.calls)
        print(f"{options.calls} old calls written in {time.perf_counter() - began:.0f} s")
        measure(lambda count: count < 200)
        alone = measure(lambda count: count < options.writes)
        command = [sys.executable, "-m", "tests.benchmarks.bench_retention", "--trim", str(folder)]
        with subprocess.Popen(command) as trimming:
            beside = measure(lambda count: trimming.poll() is None)
        print(described("alone", alone))
        print(described("beside the retention", beside))
        print(f"median added: {statistics.median(beside) - statistics.median(alone):.2f} ms")


if __name__ == "__main__":
    main()
