"""The two processes of bench_retention, on the database of the settings. `trim` runs the retention at a simulated time; any
other one writes the calls of each simulated day and measures writes, first alone and then beside `trim`.

python -m tests.benchmarks.retention_cases DAYS HOURS_A_DAY PER_MINUTE WRITES MINUTES | trim NOW [WRITES]
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import django
from django.core.management import call_command
from django.db.models import Sum
from django.utils import timezone

django.setup()

from mcpadmin import collector  # noqa: E402  # after the set-up
from servers.audit import commit, payloads  # noqa: E402  # after the set-up
from servers.audit.record import SYSTEM, Event  # noqa: E402  # after the set-up
from servers.audit.writer import writer  # noqa: E402  # after the set-up
from servers.enums import AuditAction, AuditOutcome, PayloadKind  # noqa: E402  # after the set-up
from servers.jobs.running import LONGEST_PAUSE_SECONDS, REST  # noqa: E402  # after the set-up
from servers.kit.words import format_bytes  # noqa: E402  # after the set-up
from sessions.enums import StoredKind  # noqa: E402  # after the set-up
from sessions.models import McpSession, RetentionLimit, StorageHour  # noqa: E402  # after the set-up
from sessions.retention import job, ledger, storage  # noqa: E402  # after the set-up
from tests.sessions.host.make import make_session  # noqa: E402  # after the set-up
from tests.sessions.retention.months import make_calls  # noqa: E402  # after the set-up

PACE_SECONDS = 0.004
DAYS_KEPT = 5
#: bytes of a call's contents and of its events, as the ledger counts them; limits keep those of this many days
CONTENTS, EVENTS = 1_340, 3_960
#: milliseconds for which a call may wait for a transaction of the retention
GOAL = 50
Times = list[float]


def write_once() -> float:
    """What a call's intent writes: a payload and an event. Milliseconds."""
    began = time.perf_counter()
    writer().submit_and_wait(
        lambda: payloads.store(PayloadKind.ARGUMENTS, '{"text":"hello"}'),
        lambda row: [Event(AuditAction.CALL_REQUEST, AuditOutcome.PENDING, SYSTEM, digests={"arguments": row.digest})],
        timeout=10,
    )
    return 1_000 * (time.perf_counter() - began)


def measured(more: Callable[[int], bool]) -> Times:
    found: Times = []
    while more(len(found)):
        found.append(write_once())
        time.sleep(PACE_SECONDS)
    return found


# --- one run of the retention ------------------------------------------------------------------------------------------
def trim(now: datetime, writes: int) -> None:
    """With `writes`, this process also writes: so many times before, and then until the run is over."""
    collector.settle()  # as in a worker
    held: list[tuple[float, str]] = []
    commit_of = commit._commit

    def noted(batch: list[Any]) -> list[Any]:
        began = time.perf_counter()
        results = commit_of(batch)
        names = [name for work in batch if (name := _name(work.fn)) != write_once.__qualname__]
        if names:
            held.append((1_000 * (time.perf_counter() - began), ", ".join(names)))
        return results

    alone = measured(lambda count: count < writes)
    commit._commit = noted  # the benchmark listens in
    found: dict[str, Any] = {}

    def run() -> None:
        began = time.perf_counter()
        outcome = job.run(_progress(), now)
        found.update(detail=outcome.detail, seconds=time.perf_counter() - began, cpu=time.thread_time())

    thread = threading.Thread(target=run)
    thread.start()
    beside = measured(lambda _: thread.is_alive()) if writes else []
    thread.join()
    print(json.dumps(found | {"held": held, "alone": alone, "beside": beside}))


def _name(work: Any) -> str:
    """What a transaction does: a lambda or a partial is named after where it was made."""
    cells = [cell.cell_contents for cell in getattr(work, "__closure__", None) or ()]
    inner = next((cell for cell in cells if isinstance(cell, partial)), work)
    while isinstance(inner, partial):
        inner = next((one for one in inner.args if callable(one)), inner.func)
    return str(getattr(inner, "__qualname__", inner)).partition(".<locals>")[0]


def _progress() -> Any:
    """Rests as the progress of a background job does."""
    last = [time.monotonic()]

    def progress(done: int, total: int | None = None) -> None:
        time.sleep(min(LONGEST_PAUSE_SECONDS, REST * (time.monotonic() - last[0])))
        last[0] = time.monotonic()

    return progress


# --- many days ---------------------------------------------------------------------------------------------------------
class Days:
    def __init__(self, hours: float, per_minute: int, writes: int) -> None:
        self.calls = round(60 * hours * per_minute)
        self.hours, self.writes = hours, writes
        self.limits = {
            StoredKind.PAYLOADS: self.calls * DAYS_KEPT * CONTENTS // 2,
            StoredKind.EVENTS: self.calls * DAYS_KEPT * EVENTS,
        }
        self.session: McpSession = make_session("tools")
        self.alone: dict[str, Times] = {"other": [], "same": []}
        self.beside: dict[str, Times] = {"other": [], "same": []}
        self.held: list[tuple[float, str]] = []
        self.made = self.trimmed = 0.0
        self.over = 0

    def keep(self) -> None:
        RetentionLimit.objects.create(kind=StoredKind.CALLS, days=DAYS_KEPT)
        for kind, most in self.limits.items():
            RetentionLimit.objects.create(kind=kind, bytes=most)

    def run(self, days: int, minutes: float) -> None:
        self.keep()
        ends = time.monotonic() + 60 * minutes
        start = timezone.now() - timedelta(days=days + 1)
        for day in range(days):
            began = time.perf_counter()
            make_calls(self.session, start + timedelta(days=day), self.calls, timedelta(hours=self.hours), whole=True)
            self.made += (made := time.perf_counter() - began)
            now = start + timedelta(days=day, hours=self.hours) + ledger.SETTLED
            found = self._trim(now, same=bool(day % 2))
            self.trimmed += found["seconds"]
            self._show(day + 1, made, found)
            if time.monotonic() > ends:
                print(f"ended after {minutes:g} minutes")
                break
        self._sum_up(day + 1)

    def _trim(self, now: datetime, *, same: bool) -> dict[str, Any]:
        """Measures alternately the writes of another process and of the process that runs the retention."""
        kind = "same" if same else "other"
        if not same:
            self.alone[kind] += measured(lambda count: count < self.writes)
        words = ["trim", now.isoformat(), str(self.writes if same else 0)]
        command = [sys.executable, "-m", "tests.benchmarks.retention_cases", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines: list[str] = []
            reading = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
            reading.start()
            beside = [] if same else measured(lambda _: process.poll() is None)
            reading.join()
        found: dict[str, Any] = json.loads(lines[-1])
        self.alone[kind] += found["alone"]
        self.beside[kind] += found["beside"] or beside
        self.held += [(ms, name) for ms, name in found["held"]]
        return found

    def _show(self, day: int, made: float, found: dict[str, Any]) -> None:
        sizes = {kind: ledger.total(kind).bytes for kind in (StoredKind.CALLS, *self.limits)}
        # what is left of contents that are gone is counted with the calls that it belongs to
        emptied = StorageHour.objects.filter(kind=StoredKind.PAYLOADS, emptied=True).aggregate(Sum("bytes"))
        sizes[StoredKind.PAYLOADS] -= emptied["bytes__sum"] or 0
        over = [kind for kind, most in self.limits.items() if sizes[kind] > most]
        self.over += bool(over)
        shown = ", ".join(
            f"{kind.value} {format_bytes(size)}"
            + (f" of {format_bytes(self.limits[kind])}" if kind in self.limits else "")
            for kind, size in sizes.items()
        )
        disk = storage.disk_now()
        longest = max((ms for ms, _ in found["held"]), default=0.0)
        print(
            f"day {day:>2}: {shown}; database {format_bytes(disk.database)}, unused {format_bytes(disk.reusable or 0)}; "
            f"made in {made:.0f} s, trimmed in {found['seconds']:.0f} s, {len(found['held'])} transactions, longest {longest:.0f} ms"
            + (f"; OVER: {', '.join(over)}" if over else ""),
            flush=True,
        )

    def _sum_up(self, days: int) -> None:
        calls, lasted = days * self.calls, days * self.hours * 3_600
        print(
            f"{calls:,} calls with contents, attempts, events and words: made {calls / self.made:,.0f} a second, trimmed "
            f"{calls / self.trimmed:,.0f} a second; they took {lasted / self.trimmed:.0f} times as long to come as to go"
        )
        print(f"days that ended over a limit: {self.over} of {days}")
        print(described("transactions of the retention", [ms for ms, _ in self.held]))
        over = sum(ms > GOAL for ms, _ in self.held)
        print(f"  {'met   ' if not over else 'MISSED'} {over} of {len(self.held)} longer than {GOAL} ms; the longest:")
        for ms, name in sorted(self.held, reverse=True)[:5]:
            print(f"  {ms:6.1f} ms  {name}")
        for kind, words in (("other", "another process"), ("same", "the same process")):
            if self.beside[kind]:
                alone, beside = self.alone[kind], self.beside[kind]
                print(described(f"writes of {words}, alone", alone))
                print(described(f"writes of {words}, beside it", beside))
                ratios = (
                    f"{name} {many / few:.2f}"
                    for name, many, few in zip(NAMES, spread(beside), spread(alone), strict=True)
                )
                print(
                    f"  ratio: {', '.join(ratios)}; median added: {statistics.median(beside) - statistics.median(alone):.2f} ms"
                )


NAMES = ("p50", "p95", "p99", "max")


def spread(found: Times) -> Times:
    ordered = sorted(found)
    return [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.95, 0.99, 1.0)]


def described(name: str, found: Times) -> str:
    values = "  ".join(f"{label} {value:6.1f} ms" for label, value in zip(NAMES, spread(found), strict=True))
    return f"{name:<42}{len(found):>8}  {values}"


def main(days: int, hours: float, per_minute: int, writes: int, minutes: float) -> None:
    call_command("migrate", verbosity=0, interactive=False)
    print(f"{days} days of {hours:g} h with {per_minute:,} calls a minute; load {os.getloadavg()[0]:.1f}", flush=True)
    measured(lambda count: count < 100)
    Days(hours, per_minute, writes).run(days, minutes)


if __name__ == "__main__":
    if sys.argv[1] == "trim":
        trim(datetime.fromisoformat(sys.argv[2]), int(sys.argv[3]))
    else:
        main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
