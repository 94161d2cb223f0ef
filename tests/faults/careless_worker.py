"""A worker with its claim switched off, the control of the checkers: a call is sent without being taken first, so every
look at its row sends it again.
"""

from typing import Any

from celery import signals

from mcpadmin.worker import app

__all__ = ["app"]


class _Taken(list[Any]):
    """Says yes and has no event to record."""

    def __bool__(self) -> bool:
        return True


@signals.worker_init.connect
def _lose_care(**kwargs: Any) -> None:
    from sessions.domain import claims  # noqa: PLC0415  # models exist only now

    claims.claim = lambda order, hold: _Taken()
