"""One request to the server: sent when the session is ready, checked, and repeated after a definite rejection only."""

import abc
import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..protocol import jsonrpc, offered
from ..protocol.asked import Root
from ..protocol.capabilities import Implementation
from ..protocol.errors import Fault, HttpError, McpError, NotReady, RpcError
from ..protocol.events import Event
from ..protocol.headers import Mirrored
from ..protocol.limits import Limits
from ..protocol.results import Timeouts
from ..protocol.rounds import ResultKind, check_result, question
from ..protocol.session import Session
from ..protocol.state import State, Trigger
from ..protocol.versions import Era
from ..transports.base import OpenTransport
from .answering import Answering
from .answers import Answer, Answers
from .collecting import Collecting
from .opener import Opener
from .pump import Ask, Pump
from .watch import Watch


class Requesting(abc.ABC):
    """What every operation of the client stands on; its life (opening, loss, closing) is the client's own."""

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
        self._answers = Answers(answers, roots, limits, self._pump.tell)
        self._answering = Answering(
            self._session, self._pump, self._answers, most=limits.open_server_requests, patience=timeouts.total
        )
        self._collecting = Collecting(self._session, self._pump, self._answers, limits)
        self._watch: Watch | None = None
        #: how often the session was opened: a request that met an older one does not open it once more
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

    def _failed(self, ask: Ask, error: McpError) -> None:  # noqa: B027  a hook: not every operation has something to do here
        """A request ended with an error."""

    def _renewed(self) -> None:  # noqa: B027  a hook: not every operation has something to do here
        """The server forgot the session and has a new one: what was set there must be set again."""

    def _over(self) -> None:  # noqa: B027  a hook: not every operation has something to do here
        """The session ended: whatever works by itself stops."""

    @abc.abstractmethod
    def _lost(self, error: McpError) -> None:
        """The transport is gone."""

    async def _request(self, method: str, params: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
        """Repeated once when a forgotten session could be renewed: the rejected request was not executed."""
        await self._demand_open()
        generation = self._generation
        ask = Ask(method, params, seconds, seconds)
        try:
            return (await self._checked(ask))[1]
        except HttpError as exc:
            if not await self._repaired(exc, generation):
                raise
        return (await self._checked(ask))[1]

    async def _checked(self, ask: Ask) -> tuple[jsonrpc.RequestId, dict[str, Any], ResultKind]:
        try:
            identity, result = await self._pump.exchange(ask)
        except McpError as exc:
            if self._watch is not None:
                self._watch.suspect(exc)
            self._failed(ask, exc)
            raise
        revision = self._session.revision
        if revision is None:
            return identity, result, "complete"  # legacy: the session is just being opened again
        wants_task = ask.params is not None and "task" in ask.params
        return (
            identity,
            result,
            check_result(result, ask.method, revision, self._session.declared, wants_task=wants_task),
        )

    async def _repaired(self, error: McpError, generation: int) -> str:
        """Whether (and how) the request may be sent once more: only after a definite rejection."""
        if error.fault is Fault.SESSION_GONE:
            await self._renew_session(generation)
            return "session_gone"
        if isinstance(error, RpcError) and error.code == jsonrpc.HEADER_MISMATCH and self._mirrors:
            return "header_mismatch"
        return ""

    async def _renew_session(self, generation: int) -> None:
        """Initialise again; of many requests that met the same forgotten session only the first does it."""
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
        """Demand an open session, and that its server declared this: else InvalidRequest (not_offered)."""
        await self._demand_open()
        offered.demand(self._session.server_capabilities, self._session.revision, capability, feature)

    async def _demand_open(self) -> None:
        """Wait while a forgotten session is being renewed, then demand that the session is ready."""
        if self._reopening.locked():
            async with self._reopening:
                pass
        if self.state is not State.READY:
            raise NotReady(f"The session is {self.state}.")
