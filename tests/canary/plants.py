"""Leaks a different value into each of twelve sinks, in rotating encodings, to prove that the search finds them."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import psutil

from tests.canary import sinks
from tests.canary.encodings import Searcher, encodings
from tests.canary.world import World
from tests.e2e.sockets import a_call, greeted

SINKS = ("page", "JSON", "socket", "Redis command", "Redis file", "other server", "database", "audit", "log", "export")
SINKS += ("environment", "command line")
#: page in hex, and so on: each sink gets an encoding that survives it unchanged
FIRST_ENCODING = 4
#: unlike any secret of the product, which some of these sinks would mask
DECOYS = {sink: f'decoy{number:02}"{sink[:3]}&5b/8e0d77+<c4' for number, sink in enumerate(SINKS)}
Hits = dict[str, list[tuple[str, str]]]


def planted(world: World, monitor: sinks.Monitor, listener: sinks.Listener) -> tuple[Hits, Hits]:
    """(what the search found in each sink, what was leaked there)"""
    forms = {
        sink: list(encodings(value).items())[(number + FIRST_ENCODING) % 8]
        for number, (sink, value) in enumerate(DECOYS.items())
    }
    leaks: dict[str, Callable[[str], bytes]] = {
        "page": lambda text: world.visitor.request("GET", "/servers/", params={"text": text}).content,
        "socket": lambda text: _ping(world, listener, text),
        "Redis command": lambda text: _command(world, monitor, text),
        "Redis file": lambda text: _stored(world, text),
        "log": lambda text: _logged(world, text),
        "database": lambda text: _described(world, text, lambda: sinks.rows_of(world.stack, audit=False)),
        "audit": lambda text: _named(world, text),
        "export": lambda text: _described(world, text, lambda: sinks.exports(world.stack, world.visitor)),
        "environment": lambda text: _in_process(text, "environment"),
        "command line": lambda text: _in_process(text, "argument"),
        "other server": lambda text: _sent_elsewhere(world, text),
        # last: the search index may copy the result from the database before it is put back
        "JSON": lambda text: _result(world, text),
    }
    search = Searcher(DECOYS)
    found = {sink: search.hits(leak(forms[sink][1].decode())) for sink, leak in leaks.items()}
    return found, {sink: [(sink, encoding)] for sink, (encoding, _) in forms.items()}


# --- answers -----------------------------------------------------------------------------------------------------------
def _result(world: World, text: str) -> bytes:
    async def called() -> str:
        async with greeted(world.stack, world.visitor) as live:
            return str((await a_call(live, world.uid("neighbour"), "tell", {}))["uid"])

    uid = asyncio.run(called())
    with _changed(world, "servers_payload", "text", f'{{"leak": "{text}"}}', "kind = 'result'"):
        return sinks.whole(world.visitor.get(f"/calls/{uid}/result.json"))


def _ping(world: World, listener: sinks.Listener, text: str) -> bytes:
    listener.say(op="ping", ref=text)
    world.until(lambda: b'"pong"' in listener.heard.replace(b" ", b""), "no pong")
    return listener.heard


def _sent_elsewhere(world: World, text: str) -> bytes:
    httpx.post(f"{world.stranger.url}/elsewhere", headers={"X-Leak": text}, trust_env=False)
    return world.stranger.sent()


def _named(world: World, text: str) -> bytes:
    """The audit log keeps the name of what was created."""
    order = {"name": text, "variable": "UNUSED", "value": "unused-value-0a1b"}
    world.post("/credentials/add/?kind=environment", 302, **order)
    return sinks.rows_of(world.stack, audit=True)


# --- Redis, logs, processes --------------------------------------------------------------------------------------------
def _command(world: World, monitor: sinks.Monitor, text: str) -> bytes:
    sinks.redis_do(world.stack, b"PING", text.encode())
    world.until(lambda: text.encode() in monitor.seen, "MONITOR does not show it")
    return monitor.seen


def _stored(world: World, text: str) -> bytes:
    """Deleted at once, but already written to the file."""
    sinks.redis_do(world.stack, b"SET", b"leak", text.encode())
    sinks.redis_do(world.stack, b"DEL", b"leak")
    world.until(lambda: b"leak" in sinks.redis_files(world.stack), "nothing was written")
    return sinks.redis_files(world.stack)


def _logged(world: World, text: str) -> bytes:
    assert world.visitor.get(f"/nowhere/{text}/").status_code == 404
    world.until(lambda: "/nowhere/" in world.stack.output, "the log has no such line")
    return world.stack.output.encode()


def _in_process(text: str, where: str) -> bytes:
    words = [text] if where == "argument" else []
    environment = {"LEAK": text} if where == "environment" else {}
    command = [sys.executable, "-u", "-c", "print(); input()", *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stdout.readline() == b"\n"  # until then the child may still be a fork of this process
        return (sinks.command_lines if words else sinks.environments)([psutil.Process(process.pid)])


# --- the database ------------------------------------------------------------------------------------------------------
def _described(world: World, text: str, read: Callable[[], bytes]) -> bytes:
    with _changed(world, "servers_server", "description", text, "slug = 'neighbour'"):
        return read()


@contextmanager
def _changed(world: World, table: str, column: str, text: str, where: str) -> Iterator[None]:
    def write(value: str) -> None:
        world.stack.write(f"UPDATE {table} SET {column} = ? WHERE {where}", value)  # noqa: S608  ours

    before = world.stack.rows(f"SELECT {column} FROM {table} WHERE {where}")[0][column]  # noqa: S608  names from this test
    write(text)
    try:
        yield
    finally:
        write(before)
