"""The open connections of this web process, and which one gives way when there are too many."""

from collections import Counter, OrderedDict
from typing import Protocol

CONNECTIONS, PER_ADDRESS = "connections", "connections_per_address"


class Connection(Protocol):
    address: str

    def give_way(self) -> None:
        """Close at once, to make room."""


class Connections:
    """Bounded in all, and per address where `most_per_address` is above 0 (behind a proxy all have the proxy's).

    A connection is idle while it waits for a request or receives one, and busy while its request is answered or it is
    an open WebSocket.
    """

    def __init__(self, most: int, most_per_address: int) -> None:
        self.most, self.most_per_address = most, most_per_address
        self._all: set[Connection] = set()
        self._of_address: Counter[str] = Counter()
        self._idle: OrderedDict[Connection, None] = OrderedDict()  # the longest idle first

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection) -> str:
        """Empty, or the name of the limit that leaves no room. The longest idle connection makes room if there is one."""
        address = connection.address
        if 0 < self.most_per_address <= self._of_address[address] and not self._make_room(address):
            return PER_ADDRESS
        if len(self._all) >= self.most and not self._make_room():
            return CONNECTIONS
        self._all.add(connection)
        self._of_address[address] += 1
        self._idle[connection] = None
        return ""

    def _make_room(self, address: str = "") -> bool:
        oldest = next((one for one in self._idle if not address or one.address == address), None)
        if oldest is None:
            return False
        self.remove(oldest)
        oldest.give_way()
        return True

    def busy(self, connection: Connection) -> None:
        self._idle.pop(connection, None)

    def idle(self, connection: Connection) -> None:
        if connection in self._all:
            self._idle[connection] = None
            self._idle.move_to_end(connection)

    def remove(self, connection: Connection) -> None:
        if connection in self._all:
            self._all.discard(connection)
            self._idle.pop(connection, None)
            self._of_address[connection.address] -= 1
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]
