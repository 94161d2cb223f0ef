"""What a listener reads from the rows of a hint. They are untrusted: anyone who can write to Redis can publish
anything."""

from typing import Any


def first_row(rows: Any) -> dict[str, Any]:
    return rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}


def is_passing(rows: Any) -> bool:
    """Whether the next change is expected at once, so no one needs to look yet."""
    return first_row(rows).get("passing") is True
