"""Reading a list page by page against a server that may never stop: pure bookkeeping."""

from typing import Any

from .errors import Fault, ProtocolError
from .events import ListKind
from .limits import Limits
from .methods import LISTS
from .results import Listing


class Pages:
    """Feed results with `add()` while `cursor` asks for more; then take `listing()`.

    An empty string is a valid cursor. Stops at a repeated cursor and at the limits, and says so.
    """

    def __init__(self, kind: ListKind, limits: Limits) -> None:
        self.method, self._member, self._key, self.capability = LISTS[kind]
        self._limits = limits
        self._items: dict[str, dict[str, Any]] = {}
        self._seen: set[str] = set()
        self._pages = 0
        self._warnings: list[str] = []
        self.truncated = False
        self.done = False
        self.params: dict[str, Any] | None = None

    def add(self, result: dict[str, Any]) -> None:
        """One page; ProtocolError (invalid_result) when it has no list where one belongs."""
        items = result.get(self._member)
        if not isinstance(items, list):
            raise ProtocolError(Fault.INVALID_RESULT, f"{self.method} was answered without a list {self._member!r}.")
        self._pages += 1
        for item in items:
            self._add_item(item)
            if self.truncated:
                break
        self._next(result.get("nextCursor"))

    def _add_item(self, item: Any) -> None:
        key = item.get(self._key) if isinstance(item, dict) else None
        if not isinstance(key, str):
            self._warn(f"An entry without {self._key} was left out.")
        elif key in self._items:
            self._warn(f"{key[:100]!r} is listed twice; the first was kept.")
        elif len(self._items) >= self._limits.list_items:
            self.truncated = True
            self._warn(f"Only the first {self._limits.list_items} entries were read.")
        else:
            self._items[key] = item

    def _next(self, cursor: Any) -> None:
        if cursor is None or self.truncated:
            self.done = True
        elif not isinstance(cursor, str):
            self._stop("The next cursor is no string.")
        elif cursor in self._seen:
            self._stop("The server repeats a cursor.", truncated=cursor != "")
        elif self._pages >= self._limits.list_pages:
            self._stop(f"Only the first {self._limits.list_pages} pages were read.")
        else:
            self._seen.add(cursor)
            self.params = {"cursor": cursor}

    def _stop(self, warning: str, *, truncated: bool = True) -> None:
        self.done, self.truncated = True, truncated
        self._warn(warning)

    def _warn(self, text: str) -> None:
        if len(self._warnings) < 50:
            self._warnings.append(text)

    def refused(self, why: str) -> None:
        """The server declared the list but does not know the method."""
        self.done = True
        self._warn(why)

    def listing(self) -> Listing:
        return Listing(list(self._items.values()), self.truncated, self._warnings)
