"""Reads a list page by page from a server that may never stop. Pure bookkeeping."""

from typing import Any, Final

from . import json_text
from .errors import Fault, ProtocolError
from .events import ListKind
from .jsonrpc import INVALID_PARAMS
from .limits import Limits
from .methods import LISTS
from .results import Listing

#: maximum length of an entry's name or URI: databases cannot index longer text
KEY_BYTES: Final = 2_048
_EMPTY_CURSOR: Final = "The server ends its list with an empty cursor."


class Pages:
    """Until `done`: request the page of `params`, and pass the result to `add()`. Then take `listing()`.

    An empty string is a valid cursor, although many servers end a list with one. A repeated cursor or a limit ends the
    listing; `limited_by` names the limit.
    """

    def __init__(self, kind: ListKind | tuple[str, str, str, str], limits: Limits) -> None:
        """`kind`: a list of methods.LISTS, or the same four facts of another list."""
        facts = LISTS[kind] if isinstance(kind, ListKind) else kind
        self.method, self._member, self._key, self.capability = facts
        self._limits = limits
        self._items: dict[str, dict[str, Any]] = {}
        self._seen: set[str] = set()
        self._pages = 0
        self._left = limits.list_bytes
        self._warnings: list[str] = []
        self.truncated, self._cut_because = False, ""
        self.limited_by: Fault | None = None
        self.done = False
        self.params: dict[str, Any] | None = None

    def add(self, result: dict[str, Any]) -> None:
        """Add one page. ProtocolError (invalid_result) if it does not contain the list."""
        items = result.get(self._member)
        if not isinstance(items, list):
            raise ProtocolError(Fault.INVALID_RESULT, f"The response to {self.method} has no list {self._member!r}.")
        self._pages += 1
        if self._asked_empty and items and all(self._key_of(item) in self._items for item in items):
            self.refused(_EMPTY_CURSOR)
            return
        for item in items:
            self._add_item(item)
            if self.done:
                return
        self._next(result.get("nextCursor"))

    def _add_item(self, item: Any) -> None:
        key = self._key_of(item)
        if key is None:
            self._warn(f"An entry without {self._key} was left out.")
        elif len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES:
            self._warn(
                f"{key[:100]!r} was left out: its {self._key} has more than {KEY_BYTES:,} bytes, which is a fixed limit."
            )
        elif key in self._items:
            self._warn(f"{key[:100]!r} is listed twice; the first was kept.")
        elif len(self._items) >= self._limits.list_items:
            self._limit(Fault.LIST_LIMIT, f"Only the first {self._limits.list_items} entries were read.")
        elif self._fits(len(json_text.encode(item))):
            self._items[key] = item

    @property
    def _asked_empty(self) -> bool:
        return self.params == {"cursor": ""}

    def _key_of(self, item: Any) -> str | None:
        key = item.get(self._key) if isinstance(item, dict) else None
        return key if isinstance(key, str) else None

    def _fits(self, size: int) -> bool:
        """Whether another `size` characters fit. Counts characters, which is close enough to bytes."""
        self._left -= size
        if self._left < 0:
            self._limit(Fault.LIST_LIMIT, f"Only the first {self._limits.list_bytes} bytes of the list were read.")
        return self._left >= 0

    def _next(self, cursor: Any) -> None:
        if cursor is None:
            self.done = True
        elif not isinstance(cursor, str):
            self._cut("The next cursor is not a string.")
        elif cursor == "" and cursor in self._seen:
            self.done = True
            self._warn("The server repeats a cursor.")
        elif cursor in self._seen:
            self._limit(Fault.CURSOR_REPEATED, "The server repeats a cursor.")
        elif self._pages >= self._limits.list_pages:
            self._limit(Fault.PAGE_LIMIT, f"Only the first {self._limits.list_pages} pages were read.")
        elif self._fits(len(cursor)):
            self._seen.add(cursor)
            self.params = {"cursor": cursor}

    def _limit(self, fault: Fault, warning: str) -> None:
        self.limited_by = fault
        self._cut(warning)

    def _cut(self, warning: str) -> None:
        self.done = self.truncated = True
        self._cut_because = warning
        self._warn(warning)

    def _warn(self, text: str) -> None:
        if len(self._warnings) < 50:
            self._warnings.append(text)

    def refused(self, why: str) -> None:
        """The server has no more pages, or does not know the method although it declared the list."""
        self.done = True
        self._warn(why)

    def ended_by(self, code: int) -> bool:
        """Whether an error means only that the empty cursor was the end of the list. If so, it is done."""
        ended = self._asked_empty and code == INVALID_PARAMS
        if ended:
            self.refused(_EMPTY_CURSOR)
        return ended

    def cut_short(self, fault: Fault, why: str) -> None:
        """End the reading early for an outside reason (a deadline). The entries read so far are kept."""
        self._limit(fault, why)

    def listing(self) -> Listing:
        return Listing(
            list(self._items.values()), self.truncated, self._warnings, self.limited_by, cut_because=self._cut_because
        )
