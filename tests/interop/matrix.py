"""Runs the matrix: each server, over each transport that it offers, in each revision that it supports.

The cells a server must pass follow from its own declarations; see verbs.py. Each combination uses one connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from sessions.mcp.core.errors import McpError
from sessions.mcp.core.opening import EraSetting
from sessions.mcp.core.versions import LEGACY
from sessions.mcp.transports.egress import OutboundPolicy
from sessions.mcp.transports.registry import HttpSpec, Spec, StdioSpec, WebSocketSpec
from tests.interop.cells import GREEN, GREEN_ANEW, Matrix, Row
from tests.interop.faces import is_offered
from tests.interop.roster import HTTP, KINDS, STDIO, WEBSOCKET, Entry, version
from tests.interop.verbs import NOT_SERVED, Verb, why_empty
from tests.interop.visit import Visit, Wrong, visiting
from tests.peers.peers import HERE, Peer, peer_command, start_peer

#: connections at once: the two cores start two servers at a time while the other connections wait
AT_ONCE = 6
VERB_SECONDS = 20.0
UNKNOWN = "?"
LATER = "later"
#: a cancelled call may keep an old server busy, so cancel comes last
ORDER = [verb for verb in Verb if verb is not Verb.CANCEL] + [Verb.CANCEL]


def run_matrix(entries: Sequence[Entry]) -> Matrix:
    run = _Run()
    try:
        return asyncio.run(run.all(entries))
    finally:
        run.stop()


class _Run:
    def __init__(self) -> None:
        self._room = asyncio.Semaphore(AT_ONCE)
        self._starting = asyncio.Semaphore(2)
        self._peers: list[Peer] = []

    def stop(self) -> None:
        """Stop all peers after the loop has ended: a thread may start a server even after its task was cancelled."""
        for peer in self._peers:
            peer.stop()

    async def all(self, entries: Sequence[Entry]) -> Matrix:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._entry(entry)) for entry in entries]
        return Matrix([row for task in tasks for row in task.result()])

    async def _entry(self, entry: Entry) -> list[Row]:
        async with AsyncExitStack() as stack:
            specs = await self._specs(entry, stack)
            first, *others = sorted(specs, key=lambda face: (face == STDIO, face in entry.probe_kills))
            rows = await self._face(entry, first, specs[first], LEGACY if entry.every_revision else ())
            spoken = {row.revision for row in rows} if entry.every_revision else set()
            more = await asyncio.gather(*(self._face(entry, face, specs[face], spoken) for face in others))
            rows = [row for face in KINDS for group in (rows, *more) for row in group if row.face == face]
            known = next((row.version for row in rows if row.version), UNKNOWN)
            return [replace(row, version=known) for row in rows]

    async def _specs(self, entry: Entry, stack: AsyncExitStack) -> dict[str, Spec]:
        """The faces that the server really offers. A missing one is a transport not offered."""
        behind = [(await self._start(entry, "http", stack, name=entry.upstream)).url] if entry.upstream else []
        specs: dict[str, Spec] = {STDIO: _stdio(entry, behind)} if entry.over_stdio else {}
        for process in entry.processes:
            peer = await self._start(entry, process.transport, stack)
            base = peer.url.removesuffix("/mcp")
            for face, path in process.paths.items():
                if await is_offered(base + path, websocket=face == WEBSOCKET):
                    specs[face] = _http(face, base + path)
        return specs

    async def _start(
        self, entry: Entry, transport: str, stack: AsyncExitStack, port: int = 0, *, name: str = ""
    ) -> Peer:
        def start() -> Peer:
            peer = start_peer(name or entry.name, transport, port=port, env=entry.environment)
            self._peers.append(peer)
            return peer

        async with self._starting:
            peer = await asyncio.to_thread(start)
        stack.push_async_callback(asyncio.to_thread, peer.stop)
        return peer

    async def _own(self, entry: Entry, face: str, stack: AsyncExitStack) -> tuple[Peer, Spec]:
        process = next(process for process in entry.processes if face in process.paths)
        peer = await self._start(entry, process.transport, stack)
        return peer, _http(face, peer.url.removesuffix("/mcp") + process.paths[face])

    async def _face(self, entry: Entry, face: str, spec: Spec, revisions: Collection[str]) -> list[Row]:
        """One row for the detected revision, and one for each other legacy revision that the server accepts."""
        detected = await self._connection(entry, face, spec, "")
        rows = [detected]
        for revision in LEGACY:
            if revision in revisions and revision != detected.revision:
                row = await self._connection(entry, face, spec, revision)
                if row.revision in (revision, UNKNOWN):
                    rows.append(row)
        newest = max(row.revision for row in rows)
        if UNKNOWN < detected.revision < newest:
            detected.cells[Verb.CONNECT] = f"detection settled on this, though {newest} is spoken"
        return sorted(rows, key=lambda row: row.revision)

    async def _connection(self, entry: Entry, face: str, spec: Spec, offer: str) -> Row:
        row = Row(entry.title, "", face, UNKNOWN)
        era: EraSetting = "legacy" if offer or face in entry.probe_kills else "auto"
        async with self._room:
            try:
                async with visiting(spec, entry.plan, era=era, offer=offer) as visit:
                    row.revision, row.transport = visit.connected.revision, visit.connected.transport
                    row.version = version(entry, visit.connected.server_info)
                    if not offer or offer == row.revision:
                        await _fill(row, entry, visit)
            except McpError as exc:
                row.cells[Verb.CONNECT] = f"{exc.fault}: {exc.detail}"
                return row
            if entry.cancel_kills and row.cells.get(Verb.CANCEL) == LATER:
                anew = partial(self._cancel_anew, entry, face, spec, offer)
                row.cells[Verb.CANCEL] = await _outcome(anew, 10 * VERB_SECONDS)
        return row

    async def _cancel_anew(self, entry: Entry, face: str, spec: Spec, offer: str) -> str:
        """Test a cancellation that ends the session, and reconnect afterwards.

        Over Streamable HTTP the cancellation ends the whole process, so this uses a separate server and restarts it."""
        async with AsyncExitStack() as stack:
            peer = None
            if face == HTTP:
                peer, spec = await self._own(entry, face, stack)
            async with visiting(spec, entry.plan, era="legacy", offer=offer) as visit:
                await visit.cancel_a_call()
                try:
                    await visit.client.ping(timeout=VERB_SECONDS)
                    return GREEN
                except McpError:
                    pass  # the session is expected to end
            if peer is not None:
                await asyncio.to_thread(peer.stop)
                port = urlsplit(peer.url).port or 0
                await self._start(entry, "all", stack, port)
            async with visiting(spec, entry.plan, era="legacy", offer=offer) as again:
                await again.call()
        return GREEN_ANEW


async def _fill(row: Row, entry: Entry, visit: Visit) -> None:
    visit.declared.revision = row.revision
    looked = await _outcome(visit.look)
    for verb in ORDER:
        empty = why_empty(verb, visit.declared, entry.plan)
        if not empty and verb in entry.not_served.get(row.face, ()):
            empty = NOT_SERVED
        if verb is Verb.CONNECT and row.transport != KINDS[row.face]:
            row.cells[verb] = f"the transport is {row.transport}"
        elif verb is Verb.LIST and looked != GREEN:
            row.cells[verb] = looked
        elif verb is Verb.CANCEL and entry.cancel_kills and not empty:
            row.cells[verb] = LATER
        else:
            row.cells[verb] = empty or await _outcome(visit.doing(verb))
    row.cells = {verb: row.cells[verb] for verb in Verb}


async def _outcome(do: Callable[[], Awaitable[str | None]], seconds: float = VERB_SECONDS) -> str:
    try:
        async with asyncio.timeout(seconds):
            return await do() or GREEN
    except TimeoutError:
        return f"nothing within {seconds:g} s"
    except (McpError, Wrong, ValueError, KeyError, IndexError) as exc:
        return f"{type(exc).__name__}: {exc}"


def _stdio(entry: Entry, behind: Sequence[str] = ()) -> StdioSpec:
    command, arguments = peer_command(entry.name, "stdio")
    before = ["--import", str(HERE / "offline.mjs")] if entry.dummy else []
    return StdioSpec(command, (*before, *arguments, *behind, *entry.arguments), env=lambda: entry.environment)


def _http(face: str, url: str) -> Spec:
    policy = OutboundPolicy(allow_loopback=True)
    if face == WEBSOCKET:
        return WebSocketSpec("ws" + url.removeprefix("http"), policy=policy)
    return HttpSpec(url, policy=policy)
