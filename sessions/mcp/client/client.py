"""The client's public interface: open, close, and everything that calls.py and lists.py do in between."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core import methods, opening
from ..core.asked import ROOTS_CHANGED, Root
from ..core.capabilities import Implementation, declares, demand_answers, derived
from ..core.errors import Fault, McpError, NotReady
from ..core.events import Event
from ..core.limits import Limits
from ..core.memory import Remembered
from ..core.results import Connected, Step, Timeouts
from ..core.state import State, Trigger
from ..core.versions import Era
from ..transports.base import OpenTransport
from .answers import Answer
from .calls import Calls
from .keep_alive import KeepAlive
from .log_level import LogLevel
from .steps import Steps
from .subscriptions import Subscriptions


class Client(Calls, Subscriptions, LogLevel):
    """One live handle on one server. Not reusable: after `close()` or a loss make a new one.

    Call all methods in the loop that created it. `on_event` is called from the reader and must return at once. Methods
    raise McpError and CancelledError only, besides what `before_send` raises.
    """

    #: Done when the connection is over: the reason for a loss, None after `close()`. Never holds an exception.
    closed: "asyncio.Future[McpError | None]"

    def __init__(
        self,
        open_transport: OpenTransport,
        *,
        client_info: Implementation,
        capabilities: Mapping[str, Any] | None = None,
        answers: Mapping[str, Answer] | None = None,
        roots: Sequence[Root] = (),
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        era: opening.EraSetting = "auto",
        remembered: Remembered | None = None,
        on_event: Callable[[Event], None],
    ) -> None:
        """`answers`: handlers of the server's questions, by method (sampling/createMessage, elicitation/create);
        roots/list is answered from `roots`. The declared capabilities follow from both, unless `capabilities` is given:
        then a capability without a handler is a ValueError. The questions asked during a call carry its `tag`."""
        answered = dict(answers or {})
        declared = derived(answered, roots=bool(roots)) if capabilities is None else capabilities
        demand_answers(declared, answered)
        super().__init__(
            open_transport,
            client_info=client_info,
            capabilities=declared,
            answers=answered,
            roots=roots,
            limits=limits or Limits(),
            timeouts=timeouts or Timeouts(),
            on_event=on_event,
        )
        self._derives = capabilities is None
        self._era: opening.EraSetting = era
        self._remembered = remembered
        self._keeping_alive: asyncio.Task[None] | None = None
        self._opening = False
        self._shutting: asyncio.Task[None] | None = None
        self.closed = asyncio.get_running_loop().create_future()

    # -- opening

    async def connect(self, on_step: Callable[[Step], None] | None = None) -> Connected:
        """Open the transport, settle era and revision. Steps: resolve, connect, handshake. With `on_step`, an HTTP
        server is first tried with a separate connection, so that the step *connect* is meaningful."""
        if self.state is not State.DISCONNECTED or self.closed.done():
            raise NotReady("A client connects once.")
        steps = Steps(on_step)
        self._opening = True
        self._pump.move(Trigger.OPEN)
        try:
            opened, self._remembered = await self._opener.open(self._era, steps, self._remembered)
            self._generation += 1
        except BaseException as exc:  # a cancelled connect must leave no child behind either
            error = exc if isinstance(exc, McpError) else NotReady("Connecting was cancelled.", Fault.CANCELLED)
            steps.fail(error)
            self._end(error)
            await self._shut()
            raise
        finally:
            self._opening = False
        self._start_keep_alive()
        return self._connected(opened)

    def _connected(self, opened: opening.Opened) -> Connected:
        transport = self._pump.transport
        return Connected(
            era=opened.revision.era,
            revision=opened.revision.name,
            server_info=opened.server_info,
            instructions=opened.instructions,
            server_capabilities=opened.server_capabilities,
            client_capabilities=opened.client_capabilities,
            transport=transport.kind,
            url=transport.url,
            decided_by=opened.decided_by,
            has_wire_session=transport.has_wire_session,
            remember=self._remembered,
        )

    # -- roots

    async def set_roots(self, roots: Sequence[Root]) -> bool:
        """Replace the answer to roots/list, and notify the server. False: the server does not know that we have roots
        (a legacy one learns it while connecting), so they apply to the next client only."""
        self._answers.roots = tuple(roots)
        if self._derives and self._session.era is Era.MODERN:
            self._session.declare(derived(self._answers.methods, roots=bool(roots)))
        if self.state is not State.READY or not declares(self._session.declared, "roots"):
            return False
        if declares(self._session.declared, "roots", "listChanged"):
            await self._pump.notify(ROOTS_CHANGED)
        return True

    # -- ending

    async def close(self) -> None:
        """End the session and everything that waits for it. May be called again, and after a loss."""
        self._end(None)
        await self._shut()

    def _lost(self, error: McpError) -> None:
        """The transport is gone. While opening, the opening decides what that means."""
        if self._opening:
            self._pump.fail_all(error)
        else:
            self._end(error)
            self._begin_shutting()

    def _end(self, error: McpError | None) -> None:
        """End the session and fail everything that waits for it. `_shut` closes the transport."""
        if self.closed.done():
            return
        self._pump.move(Trigger.LOST if error else Trigger.CLOSE, error.detail if error else "")
        self._pump.fail_all(error or NotReady("The session was closed.", Fault.CLOSED, may_have_run=True))
        self._pump.flush_dropped()
        self._answering.stop()
        self._collecting.stop(error)
        self._over()
        self.closed.set_result(error)
        if self._keeping_alive is not None and self._keeping_alive is not asyncio.current_task():
            self._keeping_alive.cancel()

    def _begin_shutting(self) -> asyncio.Task[None]:
        if self._shutting is None:
            self._pump.stop_side_queue()
            self._shutting = asyncio.create_task(self._close_transport(), name="mcp transport close")
        return self._shutting

    async def _shut(self) -> None:
        await asyncio.shield(self._begin_shutting())
        if self.state is State.DISCONNECTING:
            self._pump.move(Trigger.CLOSED)

    @property
    def pid(self) -> int | None:
        """The pid of the server, if it is our child process."""
        return getattr(self._pump.transport, "pid", None) if self._pump.has_transport else None

    async def _close_transport(self) -> None:
        if self._pump.has_transport:
            await self._pump.transport.close()

    # -- watching

    def _start_keep_alive(self) -> None:
        modern = self._session.era is Era.MODERN
        self._keep_alive = KeepAlive(self._pump, self._timeouts, self._ping, modern=modern)
        self._keeping_alive = asyncio.create_task(self._run_keep_alive(self._keep_alive), name="mcp keep-alive")

    async def _run_keep_alive(self, keep_alive: KeepAlive) -> None:
        self._lost(await keep_alive.run())

    async def ping(self, *, timeout: float | None = None) -> float:
        """Measure one round trip, in seconds (legacy: ping; modern: server/discover)."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._ping(timeout or self._timeouts.request)
        return loop.time() - began

    async def _ping(self, seconds: float) -> dict[str, Any]:
        method = methods.PING if self._session.era is Era.LEGACY else methods.DISCOVER
        return await self._request(method, None, seconds)
