"""The columns of the explorer's list."""

from collections.abc import Iterable
from typing import Final

#: name in the URL -> label
COLUMNS: Final = {
    "time": "Time",
    "what": "Event",
    "outcome": "Outcome",
    "server": "Server",
    "who": "User",
    "way": "Source",
    "identity": "Identity",
    "kind": "Kind",
    "preview": "Arguments",
    "duration": "Duration",
    "size": "Size",
}
DEFAULT: Final = ("time", "what", "outcome", "server", "who", "duration")
#: without them a row has no link
ALWAYS: Final = frozenset({"time", "what"})


def chosen(names: Iterable[str]) -> list[str]:
    """Columns in the order of the table; the default if `names` has none of them."""
    wanted = {name for name in names if name in COLUMNS}
    return [name for name in COLUMNS if name in (wanted | ALWAYS if wanted else DEFAULT)]


def text_form(columns: list[str]) -> str:
    """The columns as text for the URL; empty for the default."""
    return "" if tuple(columns) == DEFAULT else ",".join(columns)
