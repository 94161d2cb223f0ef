"""Reports wire traffic to a recorder: each message as it is sent or received, and each HTTP exchange.

Recording changes nothing: no method waits or raises. A recorder gets secrets (headers, tokens in URLs) and must mask
them before it keeps anything.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from ..core.limits import Limits
from ..core.session import Outgoing


class Exchange(Protocol):
    """One HTTP request and its answer, or the handshake of a WebSocket connection and what follows it."""

    def answered(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The head of the answer arrived."""

    def failed(self, fault: str, detail: str) -> None:
        """There is no answer, or it was cut off."""

    def read(self, size: int) -> None:
        """This many more bytes of the answer's body arrived."""

    def ended(self) -> None:
        """The answer has ended or will not be read further. May be called again."""


class Recorder(Protocol):
    """Called from the event loop's thread only."""

    def opened(self, kind: str, limits: Limits) -> None:
        """A transport of this kind is about to connect. `limits`: its message limits, which reported messages may
        still exceed."""

    def exchange(self, verb: str, url: str, headers: Mapping[str, str], *, authorization: bool = False) -> Exchange:
        """An HTTP request is about to be sent. `authorization`: to an authorization server, or to find one."""

    def sent(self, outgoing: Outgoing, exchange: Exchange | None = None) -> None:
        """A message is about to leave, in this exchange if the transport is HTTP. Called again for each repetition."""

    def received(self, data: bytes, answering: Outgoing | None = None, exchange: Exchange | None = None) -> None:
        """A whole message, as for Receiver.message."""

    def hide(self, value: str) -> None:
        """The transport learned a secret, such as the id of a wire session."""


class _UnrecordedExchange:
    def answered(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None: ...
    def failed(self, fault: str, detail: str) -> None: ...
    def read(self, size: int) -> None: ...
    def ended(self) -> None: ...


class _Unrecorded:
    def opened(self, kind: str, limits: Limits) -> None: ...

    def exchange(self, verb: str, url: str, headers: Mapping[str, str], *, authorization: bool = False) -> Exchange:
        return UNRECORDED_EXCHANGE

    def sent(self, outgoing: Outgoing, exchange: Exchange | None = None) -> None: ...
    def received(self, data: bytes, answering: Outgoing | None = None, exchange: Exchange | None = None) -> None: ...
    def hide(self, value: str) -> None: ...


UNRECORDED_EXCHANGE: Final[Exchange] = _UnrecordedExchange()
UNRECORDED: Final[Recorder] = _Unrecorded()
