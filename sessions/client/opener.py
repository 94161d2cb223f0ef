"""Drives the opening of a session (protocol/opening.py) over a transport."""

import logging
import secrets
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..protocol import methods, opening
from ..protocol.capabilities import Implementation
from ..protocol.errors import McpError
from ..protocol.memory import Remembered, contradicts
from ..protocol.negotiation import Outcome
from ..protocol.results import Timeouts
from ..protocol.session import Session
from ..protocol.state import State, Trigger
from ..protocol.versions import Era
from ..transports.base import OpenTransport
from .pump import Ask, Pump
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
        #: what to ask `open_transport` for; empty: what the description says
        self._kind = self._url = ""

    async def open(
        self, era: opening.EraSetting, steps: Steps, memory: Remembered | None = None
    ) -> tuple[opening.Opened, Remembered]:
        """Open by what is remembered; where that proves wrong, find everything out once more. Returns what to
        remember from now on."""
        now = time.time()
        if memory is not None and memory.fresh(now) and era in ("auto", str(memory.era)):
            try:
                opened = await self._open(era, steps, memory)
            except McpError as exc:
                if not contradicts(exc, memory):
                    raise
                log.debug("what is remembered of the server is wrong: %s", exc.fault)
            else:
                return opened, self._kept(opened, memory, now)
        opened = await self._open(era, steps, None)
        return opened, self._kept(opened, None, now)

    def _kept(self, opened: opening.Opened, memory: Remembered | None, now: float) -> Remembered:
        """A verdict that was only repeated keeps its age: it has to be doubted one day."""
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
        """Initialise again on the same transport: the server forgot the session."""
        return await self._drive(opening.reopening(self._info, self._capabilities))

    async def _new_transport(self, steps: Steps) -> None:
        if self._pump.has_transport:
            await self._pump.transport.close()
        transport = await self._open_transport(kind=self._kind, url=self._url)
        self._pump.attach(transport)
        steps.start("resolve")
        steps.finish(await transport.resolve())
        steps.start("connect")
        steps.finish(await transport.connect(self._pump, check=steps.wanted))

    async def _drive(self, script: opening.Opening) -> opening.Opened:
        """Do what the opening asks, tell it what came of it, and take over what it found."""
        outcome: Outcome | None = None
        try:
            while True:
                outcome = await self._act(script.send(outcome))
        except StopIteration as stop:
            opened: opening.Opened = stop.value
        self._session.settle(opened.revision)
        self._session.server_capabilities = opened.server_capabilities
        self._pump.transport.negotiated(opened.revision)
        if self._session.state is State.CONNECTING:
            self._pump.move(Trigger.ERA_KNOWN)
        if opened.revision.era is Era.LEGACY:
            await self._pump.transport.ready()
        self._pump.move(Trigger.OPENED)
        return opened

    async def _act(self, action: opening.Action) -> Outcome | None:
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
            await self._pump.notify(methods.INITIALIZED)
        return None

    async def _change(self, kind: str) -> McpError | None:
        self._kind = kind
        try:
            await self._new_transport(Steps(None))
        except McpError as exc:
            return exc
        return None

    async def _probe(self, action: opening.Probe) -> Outcome:
        if self._session.state is State.INITIALIZING:
            self._pump.move(Trigger.REOPEN)
        self._session.settle(action.revision)
        self._pump.transport.negotiated(None)
        identity, patience = f"probe-{secrets.token_hex(4)}", self._timeouts.probe
        if self._pump.transport.heard:
            return await self._outcome(Ask(methods.DISCOVER, None, patience, patience, identity))
        # A child that is silent may still be starting: its clock begins with its first byte.
        self._pump.on_first_sign(partial(self._pump.postpone, identity, patience))
        longest = min(2 * patience, self._timeouts.probe_cap)
        return await self._outcome(Ask(methods.DISCOVER, None, longest, longest, identity))

    async def _initialize(self, action: opening.Initialize) -> Outcome:
        self._session.settle(None)
        self._pump.transport.negotiated(None)
        if self._session.state is State.CONNECTING:
            self._pump.move(Trigger.ERA_KNOWN)
        seconds = self._timeouts.initialize
        return await self._outcome(Ask(methods.INITIALIZE, action.params, seconds, seconds))

    async def _outcome(self, ask: Ask) -> Outcome:
        """A request of the opening: its error is an outcome like another."""
        try:
            return (await self._pump.exchange(ask))[1]
        except McpError as exc:
            return exc
