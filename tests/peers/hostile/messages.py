"""What a hostile server says, whatever carries it: the pieces that the scenarios are made of. Standard library only."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

KIB, MIB = 1024, 1024 * 1024
#: what nothing may ever fetch; the peers put an address here that tells whether it was
BAIT = "http://127.0.0.1:9/bait"


@dataclass
class Big:
    """One message too large to be held here: `head`, then `fill` so many times, then `tail`."""

    head: bytes
    fill: bytes
    times: int
    tail: bytes = b""

    @property
    def size(self) -> int:
        return len(self.head) + len(self.fill) * self.times + len(self.tail)

    def pieces(self) -> Iterator[bytes]:
        yield self.head
        block = max(1, MIB // len(self.fill))
        full, rest = divmod(self.times, block)
        for _ in range(full):
            yield self.fill * block
        yield self.fill * rest + self.tail


#: a number: seconds of silence
Said = bytes | Big | float


def dumped(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def text_result(identity: Any, text: str) -> bytes:
    return dumped({"id": identity, "result": {"content": [{"type": "text", "text": text}]}})


class Ask:
    """One request of the client, as the scenarios see it."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.id = message.get("id")
        self.params: dict[str, Any] = message.get("params") or {}
        self.token = (self.params.get("_meta") or {}).get("progressToken")

    def right(self) -> bytes:
        return text_result(self.id, "right")

    def raw(self, result: bytes) -> bytes:
        """An answer whose result is this text."""
        return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (self.id, result)


#: one scenario: what is said to one request
Scene = Callable[[Ask], Iterator[Said]]


def name_of(scene: Scene) -> str:
    return scene.__name__.replace("_", "-")
