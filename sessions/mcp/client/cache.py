"""Results that a modern server allows to be cached, for as long as it allows.

One client acts for one principal, so both scopes are the same here. Only what the caller asked to cache is kept.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from ..core import jsonrpc, methods
from ..core.events import Event, ListChanged, ListKind, ResourceUpdated
from ..core.results import Listing

#: answers kept, and their total bytes as JSON text; the least recently used is evicted first
MAX_ENTRIES: Final = 128
MAX_BYTES: Final = 4 * 1024 * 1024

#: (method, URI or nothing)
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Entry:
    value: Any
    fresh_until: float
    size: int


class Cache:
    """`now` and `fresh_until` are seconds of one monotonic clock. Callers must not change what they get."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._size = 0
        #: how often an entry was dropped because the server said that it changed
        self.changes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key, now: float) -> Any:
        """None unless it is fresh."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if now >= entry.fresh_until:
            self.drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: Key, value: Any, fresh_until: float, now: float) -> None:
        """Replace the previous value, unless this one is stale already or too large by itself."""
        self.drop(key)
        if now >= fresh_until:
            return
        size = len(jsonrpc.encode(value.items if isinstance(value, Listing) else value))
        if size > MAX_BYTES:
            return
        self._entries[key] = _Entry(value, fresh_until, size)
        self._size += size
        while len(self._entries) > MAX_ENTRIES or self._size > MAX_BYTES:
            self._size -= self._entries.popitem(last=False)[1].size

    def drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= entry.size

    def clear(self) -> None:
        self._entries.clear()
        self._size = 0

    def on_event(self, event: Event) -> None:
        """Drop what the server says has changed."""
        if type(event) is ListChanged:
            self.changes += 1
            self.drop(list_key(event.kind))
            if event.kind is ListKind.RESOURCES:  # templates have no notification of their own
                self.drop(list_key(ListKind.RESOURCE_TEMPLATES))
        elif type(event) is ResourceUpdated:
            self.changes += 1
            for key in [key for key in self._entries if _concerns(event.uri, key)]:
                self.drop(key)


def list_key(kind: ListKind) -> Key:
    return methods.LISTS[kind][0], ""


def read_key(uri: str) -> Key:
    return methods.RESOURCES_READ, uri


def _concerns(updated: str, key: Key) -> bool:
    """The resource itself, or a parent of it: a server may name a child of a resource that it lists."""
    method, uri = key
    return method == methods.RESOURCES_READ and (updated == uri or updated.startswith(uri.rstrip("/") + "/"))
