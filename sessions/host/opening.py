"""A client for one launch, and what a failure to open or hold it looks like on a page."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from sessions.client import Client
from sessions.client.answers import Answer
from sessions.domain.lifecycle import Failure
from sessions.host.launch import Launch, client_info
from sessions.host.orders import Roots
from sessions.host.redaction import Redactor
from sessions.protocol.asked import Root
from sessions.protocol.errors import Fault, McpError, TransportError
from sessions.protocol.events import DiagnosticLine, Event
from sessions.transports.registry import open_transport

TAIL_LINES = 40
#: faults that can only have happened before the handshake
_EARLIER: dict[str, str] = {
    Fault.COMMAND_NOT_FOUND: "resolve",
    Fault.DNS_FAILED: "resolve",
    Fault.ADDRESS_REFUSED: "resolve",
    Fault.SPAWN_FAILED: "connect",
    Fault.CONNECTION_REFUSED: "connect",
    Fault.TLS_FAILED: "connect",
}


def make_client(
    launch: Launch, on_event: Callable[[Event], None], answers: Mapping[str, Answer] | None = None
) -> Client:
    """`answers`: who answers the server's questions, by method; the others are not declared."""
    return Client(
        partial(open_transport, launch.spec),
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
    """Collects what helps to explain a failure: the step that was under way and the last words of the child."""

    def __init__(self, redactor: Redactor, step: str = "") -> None:
        self._redactor = redactor
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self.step = step

    def hear(self, event: DiagnosticLine) -> None:
        self._lines.append(event.text)

    @property
    def tail(self) -> str:
        return self._redactor.text("\n".join(self._lines))

    def failure(self, error: McpError) -> Failure:
        tail = error.stderr_tail if isinstance(error, TransportError) and error.stderr_tail else ""
        return Failure(
            fault=error.fault,
            detail=self._redactor.text(error.detail),
            step=_EARLIER.get(error.fault, self.step) if self.step else "",
            stderr_tail=self._redactor.text(tail) or self.tail,
        )
