"""The host that runs in this process, for Celery tasks to hand over to. Knows nothing of what a host does."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

Ring = Callable[[dict[str, Any]], None]
_ring: Ring | None = None


class NoHost(RuntimeError):
    """No session host runs in this process: the task reached a worker without one, or one that stops."""


def set_ring(ring: Ring | None) -> None:
    global _ring
    _ring = ring


def hand_over(verb: str, uid: UUID | str) -> None:
    """Have the host look at a row, from any thread."""
    if _ring is None:
        raise NoHost("no session host runs in this process")
    _ring({"v": 1, "verb": verb, "id": str(uid)})
