"""The two processes of bench_retention, on the database of the settings: `trim` removes old calls, any other one fills
the database and measures writes, first alone and then beside `trim`.

python -m tests.benchmarks.retention_cases CALLS WRITES | trim
"""

import statistics
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import django
from django.core.management import call_command
from django.utils import timezone

django.setup()

from servers.audit import payloads  # noqa: E402  # after the set-up
from servers.audit.record import SYSTEM, Event  # noqa: E402  # after the set-up
from servers.audit.writer import writer  # noqa: E402  # after the set-up
from servers.enums import AuditAction, AuditOutcome, PayloadKind  # noqa: E402  # after the set-up
from servers.jobs.running import LONGEST_PAUSE_SECONDS, REST  # noqa: E402  # after the set-up
from sessions.enums import StoredKind  # noqa: E402  # after the set-up
from sessions.models import RetentionLimit  # noqa: E402  # after the set-up
from sessions.retention import job, trimming  # noqa: E402  # after the set-up
from tests.sessions.host.make import make_session  # noqa: E402  # after the set-up
from tests.sessions.retention.months import make_calls  # noqa: E402  # after the set-up

PACE_SECONDS = 0.004


def fill(calls: int) -> None:
    session = make_session("tools")
    begin = timezone.now() - timedelta(days=60)
    for start in range(0, calls, 2_000):
        make_calls(session, begin + timedelta(minutes=start // 1000), min(2_000, calls - start), timedelta(minutes=2))


def write_once() -> float:
    """What a call's intent writes: a payload and an event."""
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
    last = [time.monotonic()]

    def progress(done: int, total: int | None = None) -> None:
        time.sleep(min(LONGEST_PAUSE_SECONDS, REST * (time.monotonic() - last[0])))
        last[0] = time.monotonic()

    return progress


def main(calls: int, writes: int) -> None:
    call_command("migrate", verbosity=0, interactive=False)
    began = time.perf_counter()
    fill(calls)
    print(f"{calls} old calls written in {time.perf_counter() - began:.0f} s", flush=True)
    measure(lambda count: count < 200)
    alone = measure(lambda count: count < writes)
    with subprocess.Popen([sys.executable, "-m", "tests.benchmarks.retention_cases", "trim"]) as trimming_process:
        beside = measure(lambda count: trimming_process.poll() is None)
    print(described("alone", alone))
    print(described("beside the retention", beside))
    print(f"median added: {statistics.median(beside) - statistics.median(alone):.2f} ms")


if __name__ == "__main__":
    if sys.argv[1] == "trim":
        trim()
    else:
        main(*map(int, sys.argv[1:]))
