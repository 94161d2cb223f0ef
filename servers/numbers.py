"""Numbers and uids in untrusted text: a URL, a form, a JSON Pointer."""

from collections.abc import Iterable
from uuid import UUID


def whole_number(text: str) -> int | None:
    """ASCII digits only, and at most what a 64-bit column holds. None for everything else: `int` would also take signs,
    spaces, underscores and the digits of other scripts, and fails on a few thousand digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def uuids(texts: Iterable[str]) -> list[UUID]:
    """The valid ones among these texts."""
    found = []
    for text in texts:
        try:
            found.append(UUID(text))
        except ValueError:
            continue
    return found
