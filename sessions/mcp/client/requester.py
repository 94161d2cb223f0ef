"""One request to the server: sent when the session is ready, checked, and repeated after a definite rejection only."""

import asyncio
from collections.abc import Callable
from typing import Any

from ..core import jsonrpc, offered
from ..core.errors import Fault, HttpError, McpError, NotReady, RpcError
from ..core.results import Timeouts
from ..core.rounds import ResultKind, check_result
from ..core.session import Session
from ..core.state import State, Trigger
from ..core.versions import Era
from .answering import Answering
from .keep_alive import KeepAlive
from .opener import Opener
from .pump import Pump, RequestSpec


class Requester:
    """Sends the requests of all operations of the client. `on_lost` ends a session that cannot be renewed."""

    def __init__(
        self,
        session: Session,
        pump: Pump,
        opener: Opener,
        answering: Answering,
        timeouts: Timeouts,
        on_lost: Callable[[McpError], None],
    ) -> None:
        self.session, self.pump, self.timeouts = session, pump, timeouts
        self._opener, self._answering, self._on_lost = opener, answering, on_lost
        self.keep_alive: KeepAlive | None = None
        #: called when a request ended with an error
        self.on_failed: list[Callable[[RequestSpec, McpError], None]] = []
        #: called when the server forgot the session and has a new one: set up again what was set there
        self.on_renewed: list[Callable[[], None]] = []
        #: how often the session was opened: a request that used an older one does not open it again
        self.generation = 0
        self._reopening = asyncio.Lock()
        self._renewals: set[asyncio.Task[None]] = set()

    @property
    def mirrors(self) -> bool:
        """Whether headers repeat what requests say (modern HTTP)."""
        return self.session.era is Era.MODERN and self.pump.transport.exchange

    async def request(self, method: str, params: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
        """Send a request, and once more if a forgotten session could be renewed: the rejected request was not
        executed."""
        await self.demand_open()
        generation = self.generation
        spec = RequestSpec(method, params, seconds, seconds)
        try:
            return (await self.exchange(spec))[1]
        except HttpError as exc:
            if not await self.repair(exc, generation):
                raise
        return (await self.exchange(spec))[1]

    async def exchange(self, spec: RequestSpec) -> tuple[jsonrpc.RequestId, dict[str, Any], ResultKind]:
        try:
            identity, result = await self.pump.exchange(spec)
        except McpError as exc:
            if self.keep_alive is not None:
                self.keep_alive.suspect(exc)
            for failed in self.on_failed:
                failed(spec, exc)
            raise
        revision = self.session.revision
        if revision is None:
            return identity, result, "complete"  # legacy: the session is just being opened again
        return (
            identity,
            result,
            check_result(result, spec.method, revision, self.session.declared, wants_task=spec.wants_task),
        )

    async def repair(self, error: McpError, generation: int) -> str:
        """Whether (and why) the request may be sent again: only after a definite rejection."""
        if error.fault is Fault.SESSION_GONE:
            try:
                await self._renew_session(generation)
            except McpError as exc:  # whatever became of the renewal, the server refused the request itself
                raise exc.again(may_have_run=error.may_have_run) from exc
            return "session_gone"
        if isinstance(error, RpcError) and error.code == jsonrpc.HEADER_MISMATCH and self.mirrors:
            return "header_mismatch"
        return ""

    async def _renew_session(self, generation: int) -> None:
        """Renew in a separate task: cancelling the request that needs it must not leave the session half open."""
        renewal = asyncio.create_task(self._renew_once(generation), name="mcp session renewal")
        self._renewals.add(renewal)
        renewal.add_done_callback(self._renewals.discard)
        await asyncio.shield(renewal)

    async def _renew_once(self, generation: int) -> None:
        """Initialize again; of several requests that hit the same forgotten session, only the first does it."""
        async with self._reopening:
            if generation != self.generation or self.session.state is not State.READY:
                return
            self.pump.move(Trigger.SESSION_GONE, "The server lost the session.")
            self._answering.stop()
            try:
                await self._opener.reopen()
            except McpError as exc:
                self._on_lost(exc)
                raise
            self.generation += 1
            for renewed in self.on_renewed:
                renewed()

    async def demand_offered(self, capability: str, feature: str = "") -> None:
        """Require an open session whose server declared this: else InvalidRequest (not_offered)."""
        if self.session.state is not State.READY or self._reopening.locked():
            await self.demand_open()
        offered.demand(self.session.server_capabilities, self.session.revision, capability, feature)

    async def demand_open(self) -> None:
        """Wait while a forgotten session is being renewed, then require that the session is ready."""
        if self._reopening.locked():
            async with self._reopening:
                pass
        if self.session.state is not State.READY:
            raise NotReady(f"The session is {self.session.state}.")
