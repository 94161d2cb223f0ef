"""Runs server scenarios of the official suite through the door for agents, in front of a peer of the same era.

python -m tests.conformance.door [SCENARIO ...]

The peer does not offer the tools, resources and prompts that most scenarios call by name, so only those run by default
that need none. The suite sends no token: a forwarder adds it and keeps Host and Origin, so that no door without a token
exists. Exits with status 0 when every scenario passed.
"""

import argparse
import asyncio
import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tests.conformance.suite import NODE, PATIENCE, SUITE, installed
from tests.peers.peers import peer_command
from tests.sessions.agents.programs import Product
from tests.tools.prepared import prepare
from tests.tools.stack import Stack

#: revision -> the peer's era, and scenarios that need nothing of certain names
SETS = {
    "2025-11-25": (
        "legacy",
        "server-initialize server-session-lifecycle ping tools-list server-sse-multiple-streams resources-list "
        "prompts-list dns-rebinding-protection",
    ),
    "2026-07-28": (
        "modern",
        "server-stateless tools-list server-sse-multiple-streams resources-list sep-2164-resource-not-found "
        "prompts-list dns-rebinding-protection caching http-header-validation",
    ),
}


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
        target.write_eof()


@contextlib.contextmanager
def forwarder(base_url: str, token: str) -> Iterator[str]:
    """The address of a program that passes one request per connection on, with the token."""
    address = urlsplit(base_url)
    loop, ready, found = asyncio.new_event_loop(), threading.Event(), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            lines[1:1] = [b"Authorization: Bearer " + token.encode(), b"Connection: close"]
            their_reader, their_writer = await asyncio.open_connection(address.hostname, address.port)
            their_writer.write(b"\r\n".join(lines))
            inwards = asyncio.create_task(_pipe(reader, their_writer))
            await _pipe(their_reader, writer)
            inwards.cancel()
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


def run(scenario: str, revision: str, url: str) -> bool:
    words = ("server", "--url", url, "--scenario", scenario, "--spec-version", revision, "--verbose")
    done = subprocess.run([NODE, SUITE, *words], capture_output=True, text=True, timeout=PATIENCE)
    passed = done.returncode == 0
    print(f"  {'passed' if passed else 'FAILED'}  {scenario}", flush=True)
    if not passed:
        told = [line for line in done.stdout.splitlines() if "Error:" in line] or [done.stdout[-2_000:], done.stderr]
        print("\n".join(told), flush=True)
    return passed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", help="run only these")
    only = set(parser.parse_args(arguments).scenarios)
    if not installed():
        print("The suite is not installed: run tests/tools/setup_peers.py.", file=sys.stderr)
        return 1
    directory = prepare(Path(tempfile.mkdtemp(prefix="mcpadmin-door-")), administrator=True)
    stack = Stack(directory)
    verdicts = []
    try:
        product = Product(stack.start(), directory / "effects")
        for revision, (era, scenarios) in SETS.items():
            product.register(era.title(), peer_command("sdk2"), "--era", era)
            with forwarder(stack.base_url, product.token(label=revision)) as base:
                print(revision, flush=True)
                chosen = sorted(only) or scenarios.split()
                verdicts += [run(scenario, revision, f"{base}/mcp/{era}") for scenario in chosen]
    finally:
        stack.close()
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{sum(verdicts)} of {len(verdicts)} passed")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
