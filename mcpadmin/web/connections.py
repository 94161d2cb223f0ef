"""The open connections of this web process, and which one is closed when they are too many, or hold too much data."""

import logging
import time
from collections import Counter, OrderedDict
from typing import Protocol

from servers import limits

logger = logging.getLogger(__name__)

CONNECTIONS, PER_ADDRESS = "connections", "connections_per_address"
#: unread response data: how much one connection may hold without being counted, and the most for all of them together
HELD_BYTES, MOST_HELD_BYTES = 64 * limits.KIB, 256 * limits.MIB
WARNED_SECONDS = 60.0


class Connection(Protocol):
    address: str

    @property
    def untaken(self) -> int:
        """Bytes of responses that its client has not read yet."""

    def give_way(self) -> None:
        """Close at once, to make room."""


class Connections:
    """Bounded in total, and per address if `most_per_address` is above 0 (behind a proxy, all have the proxy's
    address).

    A connection is idle while it waits for a request or receives one, and busy while its request is answered or it is
    an open WebSocket.
    """

    def __init__(self, most: int, most_per_address: int) -> None:
        self.most, self.most_per_address = most, most_per_address
        self._all: set[Connection] = set()
        self._of_address: Counter[str] = Counter()
        self._idle: OrderedDict[Connection, None] = OrderedDict()  # the longest idle first
        self._holding: set[Connection] = set()
        self._warned_at = float("-inf")

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection) -> str:
        """Return the name of the limit that was reached, or "". The connection that is idle longest makes room, if
        any."""
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

    def hold(self, connection: Connection) -> None:
        """Its client has HELD_BYTES or more left to read. If all together exceed the limit, the largest connections of
        the address that holds the most are closed: a client that does not read harms no one else."""
        self._holding.add(connection)
        held = {one: size for one in self._holding if (size := one.untaken) >= HELD_BYTES}
        self._holding = set(held)
        while sum(held.values()) > MOST_HELD_BYTES:
            of_address: Counter[str] = Counter()
            for one, size in held.items():
                of_address[one.address] += size
            address = of_address.most_common(1)[0][0]
            largest = max((one for one in held if one.address == address), key=held.__getitem__)
            self._warn(address, sum(held.values()))
            del held[largest]
            self.remove(largest)
            largest.give_way()

    def _warn(self, address: str, size: int) -> None:
        if time.monotonic() - self._warned_at > WARNED_SECONDS:
            self._warned_at = time.monotonic()
            logger.warning("%d bytes of responses are unread: closing connections of %s", size, address)

    def remove(self, connection: Connection) -> None:
        self._holding.discard(connection)
        if connection in self._all:
            self._all.discard(connection)
            self._idle.pop(connection, None)
            self._of_address[connection.address] -= 1
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]
