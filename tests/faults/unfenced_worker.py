"""A worker that ignores its fencing epoch, as a control for the checkers: after another worker took over its sessions
while it was frozen, it continues as their owner.
"""

import re
from collections.abc import Callable
from typing import Any

from celery import signals

from mcpadmin.worker import app

__all__ = ["app"]


_FENCE = re.compile(r"AND EXISTS \(.*\)\n", re.DOTALL)


def _of_whoever_owns_it(change: Callable[..., bool]) -> Callable[..., bool]:
    """`statements.change` with the owner and epoch that the row has now."""

    def changed(key: tuple[int, int, int], *rest: Any) -> bool:
        from sessions.models import McpSession  # noqa: PLC0415  # models exist only now

        owner = McpSession.objects.filter(pk=key[0]).values_list("owner_id", "epoch").first()
        return change((key[0], *(owner or key[1:])), *rest)

    return changed


@signals.worker_init.connect
def _lose_the_fence(**kwargs: Any) -> None:
    from sessions.calls import statements as calls  # noqa: PLC0415  # models exist only now
    from sessions.connections import lifecycle, statements  # noqa: PLC0415  # as above
    from sessions.host.session_supervisor import SessionSupervisor  # noqa: PLC0415  # as above

    for vendor, statement in calls._CLAIMS.items():
        calls._CLAIMS[vendor], cut = _FENCE.subn("AND (%s > 0 OR %s > 0)\n", statement)
        assert cut == 1
    lifecycle.held = lambda lease: lifecycle.McpSession.objects.filter(pk=lease.session_id)
    statements.change = _of_whoever_owns_it(statements.change)
    SessionSupervisor.desired_changed = lambda self, desired: self._news.set()
