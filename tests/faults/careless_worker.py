"""A worker without claims, as a control for the checkers: it sends a call without claiming it first, so every look at
the row sends it again.
"""

from typing import Any

from celery import signals

from mcpadmin.worker import app

__all__ = ["app"]


class _Taken(list[Any]):
    """True, with no audit event to record."""

    def __bool__(self) -> bool:
        return True


@signals.worker_init.connect
def _lose_care(**kwargs: Any) -> None:
    from sessions.calls import claims  # noqa: PLC0415  # models exist only now

    claims.claim = lambda call, lease: _Taken()
