"""A worker that ignores its fencing epoch, the control of the checkers: overtaken while it stood still, it goes on as if
the sessions were its own.
"""

from typing import Any

from celery import signals

from mcpadmin.worker import app

__all__ = ["app"]


class _AnyOwner:
    """`McpSession` for the claim: whoever asks owns the session."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.objects = self

    def filter(self, *args: Any, owner_id: Any = None, epoch: Any = None, **kwargs: Any) -> Any:
        return self._model.objects.filter(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model.objects, name)


@signals.worker_init.connect
def _lose_the_fence(**kwargs: Any) -> None:
    from sessions.domain import claims, lifecycle  # noqa: PLC0415  # models exist only now
    from sessions.host.supervisor import Supervisor  # noqa: PLC0415  # as above

    claims.McpSession = _AnyOwner(claims.McpSession)
    lifecycle.held = lambda hold: lifecycle.McpSession.objects.filter(pk=hold.session_id)
    Supervisor.ordered = lambda self, orders: self._news.set()
