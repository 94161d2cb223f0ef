"""The official suite through the door for agents: every server scenario of a revision, in front of the peer that has all
that the suite calls by name, in the same era and in the other one. The ledger is checked after each run.

python -m tests.conformance.door [--revision R] [--era ERA] [--out FOLDER] [SCENARIO ...]

The suite sends no token: a forwarder adds it and keeps Host and Origin, so that no door without a token exists. Exits
with status 0 when every scenario passed but the known ones across eras, and the ledger is in order.
"""

import argparse
import asyncio
import contextlib
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.conformance.suite import NODE, PATIENCE, SUITE, harness, installed
from tests.peers.peers import peer_command, start_peer
from tests.sessions.agents.product import Product
from tests.tools.prepared import prepare
from tests.tools.stack import Stack

REVISIONS: Final = {"2025-11-25": "legacy", "2026-07-28": "modern"}
#: (revision, era of the server) -> scenario -> why it cannot pass across eras
ACROSS: Final[dict[tuple[str, str], dict[str, str]]] = {
    ("2025-11-25", "modern"): {},
    ("2026-07-28", "legacy"): {
        "input-required-result-basic-elicitation": "a legacy server's question has no key, and the scenario wants user_name",
        "server-stateless": "a legacy server hears capabilities once, in initialize: it cannot refuse one request (-32021)",
        "input-required-result-basic-list-roots": "a legacy session declares its own roots when it opens, none of agents",
        "input-required-result-multiple-input-requests": "the same: one of its three inputs is roots/list",
        "input-required-result-ignore-extra-params": "a legacy server takes no answers before it asks",
    },
}
ENTRY: Final = re.compile(r"^\s+- (\S+)(?: \[\S+\])?$", re.MULTILINE)


@dataclass(frozen=True)
class Scenario:
    name: str
    counts: Counter[str]
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.problems and bool(self.counts["SUCCESS"])


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
        target.write_eof()


@contextlib.contextmanager
def forwarder(base_url: str, token: str) -> Iterator[str]:
    """The address of an agent that passes one request per connection on, with the token. What is too much is sent again."""
    address = urlsplit(base_url)
    loop, ready, found = asyncio.new_event_loop(), threading.Event(), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length[1])) if length else b""
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            lines[1:1] = [b"Authorization: Bearer " + token.encode(), b"Connection: close"]
            gone = asyncio.create_task(reader.read())
            while True:
                their_reader, their_writer = await asyncio.open_connection(address.hostname, address.port)
                their_writer.write(b"\r\n".join(lines) + body)
                status = await their_reader.readline()
                if b" 429 " not in status:
                    break
                their_writer.close()  # like an agent that was asked to wait
                await asyncio.sleep(0.5)
            gone.add_done_callback(lambda _: their_writer.close())
            writer.write(status)
            await _pipe(their_reader, writer)
            gone.cancel()
            their_writer.close()
        writer.close()

    async def start() -> None:
        server = await asyncio.start_server(serve, "localhost", 0)
        found.append(server.sockets[0].getsockname()[1])
        ready.set()

    thread = threading.Thread(target=lambda: (loop.create_task(start()), loop.run_forever()), daemon=True)
    thread.start()
    assert ready.wait(10)
    yield f"http://localhost:{found[0]}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)


def run_set(revision: str, url: str, out: Path) -> list[Scenario]:
    """Every server scenario that the revision requires, and those that are never scored: one process of the suite."""
    words = ("server", "--url", url, "--requirements", revision, "-o", str(out))
    return _run(words, out)


def run_one(scenario: str, revision: str, url: str, out: Path) -> list[Scenario]:
    words = ("server", "--url", url, "--scenario", scenario, "--spec-version", revision, "--force", "-o", str(out))
    return _run(words, out)


def _run(words: tuple[str, ...], out: Path) -> list[Scenario]:
    shutil.rmtree(out, ignore_errors=True)
    done = subprocess.run([NODE, SUITE, *words], capture_output=True, text=True, timeout=5 * PATIENCE)
    found = [_scenario(file) for file in sorted(out.rglob("checks.json"))]
    if not found:
        print(done.stdout[-2_000:], done.stderr[-2_000:], flush=True)
    return found


def _scenario(file: Path) -> Scenario:
    """A warning is a problem too: the suite's own verdict passes over it."""
    checks = json.loads(file.read_text())
    bad = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
    problems = tuple(f"{check['id']} {check['status']}: {check.get('errorMessage', '')[:300]}" for check in bad)
    name = re.sub(r"-20\d\d-\d\d-\d\dT.*", "", file.parent.name).removeprefix("server-")
    return Scenario(name, Counter(check["status"] for check in checks), problems)


def required(revision: str) -> tuple[str, ...]:
    """The server scenarios that decide whether a server conforms to the revision."""
    scored = harness("list", "--requirements", revision).stdout.partition("never scored")[0]
    servers = scored.partition("Client scenarios")[0]
    return tuple(ENTRY.findall(servers))


class Door:
    """A product with the peer in both eras, for `with`. Legacy over HTTP, where a question says which call it is about;
    modern over stdio. `judge` runs the suite and prints what came of it."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._directory = prepare(Path(tempfile.mkdtemp(prefix="mcpadmin-door-")), administrator=True)
        self._stack = Stack(self._directory)
        self.product = Product(self._stack, self._directory / "effects")

    def __enter__(self) -> "Door":
        self._stack.start()
        self._peer = start_peer("conformance")
        self.product.register_url("Legacy", self._peer.url, "--era", "legacy")
        self.product.register("Modern", peer_command("conformance"), "--era", "modern")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._peer.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def judge(self, revision: str, era: str, only: tuple[str, ...] = ()) -> tuple[list[Scenario], list[str]]:
        """The scenarios, and what is wrong with the ledger."""
        token = self.product.token("list", "read", "call", "sampling", label=f"{revision} {era}")
        with forwarder(self._stack.base_url, token) as base:
            url, out = f"{base}/mcp/{era}", self._out / f"{revision}-{era}"
            if not only:
                found = run_set(revision, url, out)
            else:
                found = [one for name in only for one in run_one(name, revision, url, out)]
        return found, self.disorder()

    def disorder(self) -> list[str]:
        """Each call was sent once, but for rounds in which a server asked, and each has ended in a way that is known."""
        deadline = time.monotonic() + PATIENCE
        while not (rows := self._ended()) and time.monotonic() < deadline:
            time.sleep(0.1)
        wrong = [
            f"{row['target']} is {row['state']}, sent {row['attempts']} times" for row in rows if not _in_order(row)
        ]
        return wrong if rows else ["no call has ended, or one never does"]

    def _ended(self) -> list[sqlite3.Row]:
        rows = self._stack.rows(
            "SELECT call.target, call.state, call.sent_at, call.open_questions, COUNT(attempt.id) AS attempts FROM mcp_sessions_call call "
            "LEFT JOIN mcp_sessions_attempt attempt ON attempt.call_id = call.id AND attempt.reason <> 'round' "
            "GROUP BY call.id ORDER BY call.id"
        )
        running = (row for row in rows if row["state"] in ("requested", "sent"))
        return [] if any(not row["open_questions"] for row in running) else rows  # some ask, and are never answered


def _in_order(row: sqlite3.Row) -> bool:
    return row["attempts"] == (row["sent_at"] is not None) and row["state"] != "outcome_unknown"


def report(revision: str, era: str, found: list[Scenario], disorder: list[str], scored: tuple[str, ...]) -> bool:
    """Whether all that was run passed, but what is known across eras."""
    across = ACROSS.get((revision, era), {})
    print(f"{revision}, {era} server", flush=True)
    good = True
    for one in found:
        known = across.get(one.name, "")
        kept = one.passed or bool(known) or one.name not in scored
        good = good and kept
        note = "" if one.name in scored else ", never scored"
        print(f"  {'passed' if one.passed else 'known ' if kept else 'FAILED'}  {one.name}{note}", flush=True)
        if not one.passed and (known or one.problems):
            print("\n".join(f"          {words}" for words in (known, *one.problems) if words), flush=True)
    passed = sum(one.passed for one in found if one.name in scored)
    print(f"{revision}, {era} server: {passed} of {len(scored)} scored scenarios passed", flush=True)
    print("\n".join(f"  ledger: {words}" for words in disorder) or "  ledger: in order", flush=True)
    return good and not disorder


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--era", choices=("legacy", "modern"), help="only in front of the server of this era")
    parser.add_argument("--revision", choices=REVISIONS, help="only this revision")
    parser.add_argument("--out", type=Path, help="keep what each scenario leaves behind in this folder")
    parser.add_argument("scenarios", nargs="*", help="run only these")
    options = parser.parse_args(arguments)
    if not installed():
        print("The suite is not installed: run tests/tools/setup_peers.py.", file=sys.stderr)
        return 1
    verdicts = []
    with tempfile.TemporaryDirectory() as temporary, Door((options.out or Path(temporary)).resolve()) as door:
        for revision in REVISIONS if options.revision is None else (options.revision,):
            for era in ("legacy", "modern") if options.era is None else (options.era,):
                found, disorder = door.judge(revision, era, tuple(options.scenarios))
                scored = tuple(options.scenarios) or required(revision)
                verdicts.append(report(revision, era, found, disorder, scored))
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
