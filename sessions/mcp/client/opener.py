"""Drives the opening of a session (core/opening.py) over a transport."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from ..core import methods, opening
from ..core.capabilities import Implementation
from ..core.errors import Fault, HttpError, McpError, NotReady, TransportError
from ..core.events import ProtocolViolation
from ..core.memory import Remembered, contradicts
from ..core.negotiation import ProbeOutcome
from ..core.refusals import with_words
from ..core.results import Timeouts
from ..core.session import Session
from ..core.state import State, Trigger
from ..core.versions import Era
from ..transports.base import OpenTransport
from .pump import Pump, RequestSpec
from .steps import Steps

log = logging.getLogger(__name__)


class Opener:
    def __init__(
        self,
        session: Session,
        pump: Pump,
        open_transport: OpenTransport,
        info: Implementation,
        capabilities: Mapping[str, Any],
        timeouts: Timeouts,
    ) -> None:
        self._session, self._pump = session, pump
        self._open_transport = open_transport
        self._info, self._capabilities = info, capabilities
        self._timeouts = timeouts
        #: the kind to request from `open_transport`; empty: the spec's own
        self._kind = self._url = ""
        #: the `initialize` that follows a probe without an answer
        self._early: asyncio.Task[ProbeOutcome] | None = None

    async def open(
        self, era: opening.EraSetting, steps: Steps, memory: Remembered | None = None
    ) -> tuple[opening.Opened, Remembered | None]:
        """Open with what is remembered about the server; if that proves wrong, negotiate from scratch. Returns what to
        remember from now on."""
        now = time.time()
        if memory is not None and memory.fresh(now) and era in ("auto", str(memory.era)):
            try:
                opened = await self._open(era, steps, memory)
            except McpError as exc:
                if not contradicts(exc, memory):
                    raise
                log.debug("what was remembered about the server is wrong: %s", exc.fault)
            else:
                return opened, self._kept(opened, memory, now)
        opened = await self._open(era, steps, None)
        return opened, self._kept(opened, None, now)

    def _kept(self, opened: opening.Opened, memory: Remembered | None, now: float) -> Remembered | None:
        """A verdict that was only reused keeps its age, so that it eventually expires. A verdict from a time-out is not
        kept."""
        if not opened.certain:
            return None
        era, transport = opened.revision.era, self._pump.transport
        repeated = memory is not None and era is Era.LEGACY and memory.kind == transport.kind
        decided_at = memory.decided_at if memory is not None and repeated else now
        return Remembered(era, opened.revision.name, transport.kind, transport.url, decided_at)

    async def _open(self, era: opening.EraSetting, steps: Steps, memory: Remembered | None) -> opening.Opened:
        self._kind, self._url = (memory.kind, memory.url) if memory else ("", "")
        await self._new_transport(steps)
        steps.start("handshake")
        transport = self._pump.transport
        script = opening.opening(
            era,
            self._info,
            self._capabilities,
            exchange=transport.exchange,
            legacy_only=transport.legacy_only,
            fallback=transport.fallback,
            remembered=memory.era if memory else None,
        )
        opened = await self._drive(script)
        if self._pump.over is not None:
            raise self._pump.over
        steps.finish(f"{opened.revision.name} ({opened.revision.era})")
        return opened

    async def reopen(self) -> opening.Opened:
        """Initialize again on the same transport, because the server forgot the session."""
        return await self._drive(opening.reopening(self._info, self._capabilities))

    async def _new_transport(self, steps: Steps) -> None:
        await self._forget_early()
        if self._pump.has_transport:
            await self._pump.transport.close()
        transport = await self._open_transport(kind=self._kind, url=self._url)
        self._pump.attach(transport)
        steps.start("resolve")
        steps.finish(await transport.resolve())
        steps.start("connect")
        steps.finish(await transport.connect(self._pump, check=steps.enabled))

    async def _drive(self, script: opening.Opening) -> opening.Opened:
        """Do what the opening yields, send it the outcomes, and adopt its result."""
        outcome: opening.Came = None
        try:
            while True:
                outcome = await self._act(script.send(outcome))
                self._demand_opening()
        except StopIteration as stop:
            opened: opening.Opened = stop.value
        finally:
            await self._forget_early()
        self._session.settle(opened.revision)
        self._session.server_capabilities = opened.server_capabilities
        self._pump.transport.negotiated(opened.revision)
        if self._session.state is State.CONNECTING:
            self._pump.move(Trigger.ERA_KNOWN)
        if opened.revision.era is Era.LEGACY:
            await self._pump.transport.ready()
            self._demand_opening()
        self._pump.move(Trigger.OPENED)
        return opened

    def _demand_opening(self) -> None:
        """Raise why the session is over, if it ended while we waited for the server. Nothing was sent for a caller yet."""
        if self._session.state not in (State.CONNECTING, State.INITIALIZING):
            over = self._pump.over or NotReady("The session was closed.", Fault.CLOSED)
            raise over.again(may_have_run=False)

    async def _act(self, action: opening.Action) -> opening.Came:
        if isinstance(action, opening.Probe):
            return await self._probe(action)
        if isinstance(action, opening.Initialize):
            return await self._initialize(action)
        if isinstance(action, opening.Change):
            return await self._change(action.kind)
        if isinstance(action, opening.Renew):
            await self._new_transport(Steps(None))
        else:
            self._session.settle(action.revision)
            self._pump.transport.negotiated(action.revision)
            await self._notify_initialized()
        return None

    async def _notify_initialized(self) -> None:
        """Some servers answer this as if it were a request, although `initialize` had just succeeded."""
        try:
            await self._pump.notify(methods.INITIALIZED)
        except HttpError as exc:
            tolerable = exc.status in (400, 404) or exc.status >= 500
            if exc.fault not in (Fault.HTTP_STATUS, Fault.SESSION_GONE) or not tolerable:
                raise
            detail = f"The server rejected {methods.INITIALIZED} with HTTP {exc.status}."
            self._pump.emit(ProtocolViolation(with_words(detail, exc.words)))

    async def _change(self, kind: str) -> McpError | None:
        self._kind = kind
        try:
            await self._new_transport(Steps(None))
        except McpError as exc:
            return exc
        return None

    async def _probe(self, action: opening.Probe) -> ProbeOutcome | opening.Greeted:
        await self._forget_early()
        if self._session.state is State.INITIALIZING:
            self._pump.move(Trigger.REOPEN)
        self._session.settle(action.revision)
        self._pump.transport.negotiated(None)
        longest = self._timeouts.initialize if self._pump.transport.exchange else self._timeouts.silence
        spec = RequestSpec(methods.DISCOVER, None, longest, longest)
        if action.otherwise is None:
            return await self._outcome(spec)
        probe = asyncio.create_task(self._outcome(spec), name="mcp probe")
        try:
            return await self._first(probe, action.otherwise)
        finally:
            await _end(probe)

    async def _first(
        self, probe: "asyncio.Task[ProbeOutcome]", params: dict[str, Any]
    ) -> ProbeOutcome | opening.Greeted:
        """The answer to the probe or, if that does not come, to an `initialize` sent after it. A process that is slow
        to start finds both in its stdin, and is not ended for being slow."""
        await asyncio.wait({probe}, timeout=self._timeouts.probe)
        if probe.done():
            return probe.result()
        self._session.settle(None)
        # Not less than the time left for the probe, and the time `initialize` has if a late probe error leads to it.
        seconds = self._timeouts.silence + self._timeouts.initialize
        early = self._early = asyncio.create_task(
            self._outcome(RequestSpec(methods.INITIALIZE, params, seconds, seconds)), name="mcp initialize"
        )
        await asyncio.wait({probe, early}, return_when=asyncio.FIRST_COMPLETED)
        if not probe.done() and isinstance(answer := early.result(), dict):
            return opening.Greeted(answer)
        # A refused `initialize` means little before the probe is answered: a modern server refuses it too.
        await asyncio.wait({probe}, timeout=self._timeouts.probe)
        return probe.result() if probe.done() else early.result()

    async def _forget_early(self) -> None:
        early, self._early = self._early, None
        if early is not None:
            await _end(early)

    async def _initialize(self, action: opening.Initialize) -> ProbeOutcome:
        self._session.settle(None)
        self._pump.transport.negotiated(None)
        if self._session.state is State.CONNECTING:
            self._pump.move(Trigger.ERA_KNOWN)
        seconds = self._timeouts.initialize
        early, self._early = self._early, None
        if early is None:
            return await self._outcome(RequestSpec(methods.INITIALIZE, action.params, seconds, seconds))
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(early)
        except TimeoutError:
            words = f"The server did not answer {methods.INITIALIZE} in time ({seconds:g} s)."
            return TransportError(Fault.TIMEOUT, words, may_have_run=True)
        finally:
            await _end(early)

    async def _outcome(self, spec: RequestSpec) -> ProbeOutcome:
        """Send a request of the opening: an error is an outcome like any other."""
        try:
            return (await self._pump.exchange(spec))[1]
        except McpError as exc:
            return exc


async def _end(task: "asyncio.Task[ProbeOutcome]") -> None:
    task.cancel()
    await asyncio.wait({task})
