"""What the record of a call costs beside its rows: the path of a call without index, recorded wire and encryption, with each
level of recording, and with all three, alternating in one run.

python -m tests.benchmarks.bench_wire [--rounds N] [--seconds S] [--callers N] [--database sqlite|postgresql] [--modes MODE,…]

Conditions and callers are those of bench_path. CPU is that of web and worker together, until what the calls left is
indexed: on SQLite with the database in it, on PostgreSQL without. The speed of a shared machine changes by half within a
minute. So each number is scaled by the CPU that the callers used for a call meanwhile, whose work is the same in each
mode; the differences as measured are printed beside.
"""

import argparse
import asyncio
import itertools
import statistics
from contextlib import nullcontext
from typing import NamedTuple

from tests.benchmarks.bench_path import PEOPLE, WARM_UP_SECONDS, Row, running, spread, whole_path
from tests.benchmarks.product import Cpu, accounts, callers, echo_servers
from tests.tools.postgres import cluster
from tests.tools.stack import Stack


class Mode(NamedTuple):
    recording: str
    index: bool = False
    seal: bool = False


OFF = "off"
MODES = {
    OFF: Mode("off"),
    "headers": Mode("headers"),
    "wire": Mode("full"),
    "index": Mode("off", index=True),
    "wire+index": Mode("full", index=True),
    "wire+index+seal": Mode("full", index=True, seal=True),
}
CHOSEN = (OFF, "wire", "wire+index", "wire+index+seal")
#: milliseconds of CPU a call
GOAL = 0.7
#: a worker notices the recording with its next tick, a process the privacy settings within five seconds
NOTICED_SECONDS = 6.0
#: the wire is written and the index follows within so long after the last call; each mode gets the same time
SETTLED_SECONDS = 4.0
#: of the index, beyond every event
_NOTHING_TO_INDEX = 2**60
_ROWS = "SELECT COUNT(*) AS n, COALESCE(SUM(CASE WHEN kind = 'dropped' THEN 1 ELSE 0 END), 0) AS notices FROM mcp_sessions_wiremessage"
_INDEX_FROM = (
    "UPDATE mcp_sessions_indexcursor SET seq = (SELECT MAX(seq) FROM servers_auditevent) + ? WHERE name = 'search'"
)
_BEHIND = "SELECT (SELECT MAX(seq) FROM servers_auditevent) - (SELECT seq FROM mcp_sessions_indexcursor WHERE name = 'search') AS n"
Rows = dict[tuple[str, str], list[Row]]


def switch(product: Stack, mode: Mode) -> None:
    product.write("UPDATE servers_server SET recording = ?", mode.recording)
    product.write("UPDATE servers_privacysettings SET seal_payloads = ?", mode.seal)
    product.write(_INDEX_FROM, 0 if mode.index else _NOTHING_TO_INDEX)


async def measure(product: Stack, modes: tuple[str, ...], rounds: int, seconds: float, count: int) -> Rows:
    found: Rows = {}
    people = await asyncio.to_thread(accounts, product, PEOPLE)
    product.shell("from servers.models import PrivacySettings; PrivacySettings.objects.update_or_create(pk=1)")
    with echo_servers(product) as servers:
        async with callers(product, people) as sockets:
            cpu = Cpu(product)
            for number in range(rounds + 1):  # the first round warms up
                turn = number % len(modes)
                for name in modes[turn:] + modes[:turn]:
                    switch(product, MODES[name])
                    await asyncio.sleep(NOTICED_SECONDS)
                    for kind, server in servers.items():
                        before = product.rows(_ROWS)[0]["n"]
                        lasting = seconds if number else min(seconds, WARM_UP_SECONDS)
                        row = await whole_path(sockets, server, count, lasting, cpu)
                        calls = row["rate"] * lasting
                        await asyncio.sleep(SETTLED_SECONDS)
                        row["cpu after"] = sum(1_000 * used / calls for used in _ours(cpu.since()))
                        row["rows a call"] = (product.rows(_ROWS)[0]["n"] - before) / calls
                        row["behind"] = product.rows(_BEHIND)[0]["n"] if MODES[name].index else 0
                        if number:
                            found.setdefault((kind, name), []).append(row)
    print(f"rows that say that messages were dropped: {product.rows(_ROWS)[0]['notices']}")
    return found


def _ours(parts: dict[str, float]) -> tuple[float, float]:
    return parts["web"], parts["worker"]


def used(row: Row) -> float:
    return row["cpu web"] + row["cpu worker"] + row["cpu after"]


def scaled(row: Row, usual: float) -> float:
    """`usual`: what the callers use for a call."""
    return used(row) * usual / row["cpu callers"]


def show(found: Rows, modes: tuple[str, ...]) -> None:
    print(
        f"{'transport':<10}{'on':>17}{'calls/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}{'(rounds)':>14}{'rows':>7}{'behind':>8}"
    )
    for (kind, name), rows in found.items():
        cpu = [used(row) for row in rows]
        numbers = f"{spread(rows, 'rate')[0]:>9.0f}{spread(rows, 'p50')[0]:>9.2f}{spread(rows, 'p99')[0]:>9.1f}"
        bounds = f"{min(cpu):.2f}-{max(cpu):.2f}"
        rest = f"{spread(rows, 'rows a call')[0]:>7.1f}{spread(rows, 'behind')[0]:>8.0f}"
        print(f"{kind:<10}{name:>17}{numbers}{statistics.median(cpu):>9.2f}{bounds:>14}{rest}")
    for kind, name in itertools.product(dict.fromkeys(kind for kind, _ in found), modes):
        if name == OFF:
            continue
        pairs = list(zip(found[kind, name], found[kind, OFF], strict=True))
        usual = statistics.median(row["cpu callers"] for pair in pairs for row in pair)
        differences = [scaled(row, usual) - scaled(off, usual) for row, off in pairs]
        more, measured = statistics.median(differences), statistics.median(used(row) - used(off) for row, off in pairs)
        print(
            f"  {'met   ' if more <= GOAL else 'MISSED'} {kind}, {name}: {more:+.2f} ms CPU a call (rounds "
            f"{min(differences):+.2f} to {max(differences):+.2f}; as measured {measured:+.2f}; goal: at most {GOAL:g})"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--callers", type=int, default=50)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--modes", default=",".join(CHOSEN), help=f"of {', '.join(MODES)}; {OFF} is always measured")
    options = parser.parse_args()
    modes = tuple(dict.fromkeys([OFF, *options.modes.split(",")]))
    with (
        cluster() if options.database == "postgresql" else nullcontext("") as url,
        running(**({"DATABASE_URL": url} if url else {})) as product,
    ):
        found = asyncio.run(measure(product, modes, options.rounds, options.seconds, options.callers))
    print(f"{options.database}; {options.callers} callers; {options.rounds} rounds of {options.seconds:g} s, medians")
    show(found, modes)


if __name__ == "__main__":
    main()
