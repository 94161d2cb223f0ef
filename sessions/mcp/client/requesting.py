"""One request to the server: sent when the session is ready, checked, and repeated after a definite rejection only."""

import abc
import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core import jsonrpc, offered
from ..core.asked import Root
from ..core.capabilities import Implementation
from ..core.errors import Fault, HttpError, McpError, NotReady, RpcError
from ..core.events import Event
from ..core.headers import Mirrored
from ..core.limits import Limits
from ..core.results import Timeouts
from ..core.rounds import ResultKind, check_result, question
from ..core.session import Session
from ..core.state import State, Trigger
from ..core.versions import Era
from ..transports.base import OpenTransport
from .answering import Answering
from .answers import Answer, Answers
from .collecting import Collecting
from .keep_alive import KeepAlive
from .opener import Opener
from .pump import Pump, RequestSpec


class Requesting(abc.ABC):
    """The base of every operation of the client; opening, loss and closing are in client.py."""

    def __init__(
        self,
        open_transport: OpenTransport,
        *,
        client_info: Implementation,
        capabilities: Mapping[str, Any],
        limits: Limits,
        timeouts: Timeouts,
        answers: Mapping[str, Answer],
        roots: Sequence[Root],
        on_event: Callable[[Event], None],
    ) -> None:
        self._limits, self._timeouts = limits, timeouts
        self._session = Session(client_info, capabilities, limits)
        self._pump = Pump(self._session, limits, on_event, self._lost)
        self._opener = Opener(self._session, self._pump, open_transport, client_info, capabilities, timeouts)
        self._answers = Answers(answers, roots, limits, self._pump.emit)
        self._answering = Answering(
            self._session, self._pump, self._answers, most=limits.open_server_requests, patience=timeouts.total
        )
        self._collecting = Collecting(self._session, self._pump, self._answers, limits)
        self._keep_alive: KeepAlive | None = None
        #: how often the session was opened: a request that used an older one does not open it again
        self._generation = 0
        self._reopening = asyncio.Lock()
        #: modern HTTP: the arguments of each tool that headers repeat
        self._mirrored: dict[str, tuple[Mirrored, ...]] = {}

    @property
    def state(self) -> State:
        return self._session.state

    @property
    def in_flight(self) -> int:
        return self._session.in_flight

    @property
    def _mirrors(self) -> bool:
        """Whether headers repeat what requests say (modern HTTP)."""
        return self._session.era is Era.MODERN and self._pump.transport.exchange

    def _failed(self, spec: RequestSpec, error: McpError) -> None:  # noqa: B027  a hook: not every operation has something to do here
        """A request ended with an error."""

    def _renewed(self) -> None:  # noqa: B027  a hook: not every operation has something to do here
        """The server forgot the session and has a new one: set up again what was set there."""

    def _over(self) -> None:  # noqa: B027  a hook: not every operation has something to do here
        """The session ended: stop all background work."""

    @abc.abstractmethod
    def _lost(self, error: McpError) -> None:
        """The transport is gone."""

    async def _request(self, method: str, params: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
        """Repeats it once if a forgotten session could be renewed: the rejected request was not executed."""
        await self._demand_open()
        generation = self._generation
        spec = RequestSpec(method, params, seconds, seconds)
        try:
            return (await self._checked(spec))[1]
        except HttpError as exc:
            if not await self._repaired(exc, generation):
                raise
        return (await self._checked(spec))[1]

    async def _checked(self, spec: RequestSpec) -> tuple[jsonrpc.RequestId, dict[str, Any], ResultKind]:
        try:
            identity, result = await self._pump.exchange(spec)
        except McpError as exc:
            if self._keep_alive is not None:
                self._keep_alive.suspect(exc)
            self._failed(spec, exc)
            raise
        revision = self._session.revision
        if revision is None:
            return identity, result, "complete"  # legacy: the session is just being opened again
        wants_task = spec.params is not None and "task" in spec.params
        return (
            identity,
            result,
            check_result(result, spec.method, revision, self._session.declared, wants_task=wants_task),
        )

    async def _repaired(self, error: McpError, generation: int) -> str:
        """Whether (and why) the request may be sent again: only after a definite rejection."""
        if error.fault is Fault.SESSION_GONE:
            await self._renew_session(generation)
            return "session_gone"
        if isinstance(error, RpcError) and error.code == jsonrpc.HEADER_MISMATCH and self._mirrors:
            return "header_mismatch"
        return ""

    async def _renew_session(self, generation: int) -> None:
        """Initialize again; of several requests that hit the same forgotten session, only the first does it."""
        async with self._reopening:
            if generation != self._generation or self.state is not State.READY:
                return
            self._pump.move(Trigger.SESSION_GONE, "The server forgot the session.")
            self._answering.stop()
            try:
                await self._opener.reopen()
            except McpError as exc:
                self._lost(exc)
                raise
            self._generation += 1
            self._renewed()

    async def _answer_for_task(self, key: str, asked: Any, tag: Any) -> Mapping[str, Any]:
        """Answer one of the questions that a task asks. ProtocolError, LocalError (see Collecting)."""
        answers = await self._collecting.collect({key: question(asked)}, origin="task", tag=tag)
        answer: Mapping[str, Any] = answers[key]
        return answer

    async def _demand_offered(self, capability: str, feature: str = "") -> None:
        """Require an open session whose server declared this: else InvalidRequest (not_offered)."""
        await self._demand_open()
        offered.demand(self._session.server_capabilities, self._session.revision, capability, feature)

    async def _demand_open(self) -> None:
        """Wait while a forgotten session is being renewed, then require that the session is ready."""
        if self._reopening.locked():
            async with self._reopening:
                pass
        if self.state is not State.READY:
            raise NotReady(f"The session is {self.state}.")
