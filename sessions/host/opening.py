"""Creates the client for a launch, and describes why it could not be opened or was lost."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from sessions.connections.lifecycle import Failure
from sessions.connections.starting import HELD_UP_AFTER, SHOWN_AFTER, unreached
from sessions.host.answer_redaction import Redactor, masked_words
from sessions.host.desired_state import Roots
from sessions.host.launch import Launch, client_info
from sessions.mcp.client import Client
from sessions.mcp.client.answerers import Answer
from sessions.mcp.core.errors import Fault, McpError, TransportError
from sessions.mcp.core.events import DiagnosticLine, Event
from sessions.mcp.core.input_requests import Root
from sessions.mcp.transports.base import OpenTransport
from sessions.mcp.transports.registry import open_transport

TAIL_LINES = 40
#: faults that can only happen before the handshake
_EARLIER: dict[str, str] = {
    Fault.COMMAND_NOT_FOUND: "resolve",
    Fault.DNS_FAILED: "resolve",
    Fault.ADDRESS_REFUSED: "resolve",
    Fault.SPAWN_FAILED: "connect",
    Fault.PACKAGE_CHANGED: "package",
    Fault.PACKAGE_UNAVAILABLE: "package",
    Fault.PACKAGE_FAILED: "package",
    Fault.CONNECTION_REFUSED: "connect",
    Fault.TLS_FAILED: "connect",
}


def make_client(
    launch: Launch,
    on_event: Callable[[Event], None],
    answers: Mapping[str, Answer] | None = None,
    *,
    open_with: OpenTransport | None = None,
) -> Client:
    """`answers` maps the methods of server requests to their handlers. Other methods are not declared. `open_with`: if
    the transport does not depend on the launch alone."""
    return Client(
        open_with or partial(open_transport, launch.spec),
        client_info=client_info(),
        answers=answers,
        roots=roots_for(launch.roots),
        remembered=launch.remembered,
        limits=launch.limits,
        timeouts=launch.timeouts,
        era=launch.era,
        on_event=on_event,
    )


def roots_for(roots: Roots) -> tuple[Root, ...]:
    return tuple(Root(uri, name) for uri, name in roots)


class Diagnosis:
    """Collects what helps to explain a failure: the current step and the child's last output. `hints`: possible causes
    of silence. `launched`: a launcher installs the server, not mcpadmin (see host/packages)."""

    def __init__(self, redactor: Redactor, step: str = "", hints: Sequence[str] = (), *, launched: bool = True) -> None:
        self._redactor, self.hints, self._launched = redactor, tuple(hints), launched
        #: set by each line
        self.line_received = asyncio.Event()
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self.step = step

    def on_event(self, event: DiagnosticLine) -> None:
        self._lines.append(event.text)
        self.line_received.set()

    @property
    def tail(self) -> str:
        return masked_words("\n".join(self._lines), self._redactor, None)

    async def show_start(self, show: Callable[[str, Sequence[str]], None]) -> None:
        """Runs until cancelled. Passes on the child's stderr at most every SHOWN_AFTER seconds, and the hints after
        HELD_UP_AFTER."""
        loop = asyncio.get_running_loop()
        held_up_at = loop.time() + HELD_UP_AFTER
        while True:
            await asyncio.sleep(SHOWN_AFTER)
            held_up = loop.time() >= held_up_at
            show(self.tail, self.hints if held_up else ())
            self.line_received.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if held_up else held_up_at):
                    await self.line_received.wait()

    def failure(self, error: McpError) -> Failure:
        tail = error.stderr_tail if isinstance(error, TransportError) and error.stderr_tail else ""
        tail = masked_words(tail, self._redactor, None) or self.tail
        hints = self.hints if error.fault is Fault.TIMEOUT else ()
        if error.fault is Fault.PROCESS_EXITED and self.hints and self._launched:
            hints = unreached(tail)
        return Failure(
            fault=error.fault,
            detail=masked_words(" ".join((error.detail, *hints)), self._redactor),
            step=_EARLIER.get(error.fault, self.step) if self.step else "",
            stderr_tail=tail,
        )
