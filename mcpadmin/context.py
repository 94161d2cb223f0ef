"""What every page shows about this installation."""

from typing import Any

from django.conf import settings
from django.db.models import Value
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from servers import access
from servers.audit.proof import alarms
from servers.forwarding import board
from servers.instance import held as held_instance
from servers.instance import reason


def instance(request: HttpRequest) -> dict[str, Any]:
    return {
        "instance_name": settings.INSTANCE_NAME,
        "program": settings.PROGRAM,
        "instance_hold": SimpleLazyObject(lambda: _hold(request)),
        "warnings": SimpleLazyObject(lambda: _warnings(request)),
        # instead of Django's, which does not know permissions that depend on others
        "perms": {"servers": SimpleLazyObject(lambda: access.permissions(request.user))},
        "commands_unconfined": SimpleLazyObject(lambda: settings.STDIO_UNCONFINED and _is_administrator(request)),
    }


def _warnings(request: HttpRequest) -> dict[str, list[Any]]:
    """What each page shows an administrator until it is fixed: alarms of the audit log, and stalled forwarding. One
    query while there is neither."""
    if not _is_administrator(request):
        return {}
    alarm = alarms.waiting().order_by().values_list(Value("alarm"))
    found = set(alarm.union(board.quiet().order_by().values_list(Value("sink"))))
    return {
        "audit_alarms": alarms.standing() if ("alarm",) in found else [],
        "stalled_sinks": board.stalled() if ("sink",) in found else [],
    }


def _is_administrator(request: HttpRequest) -> bool:
    user = getattr(request, "user", None)
    return user is not None and user.is_authenticated and user.is_superuser


def _hold(request: HttpRequest) -> dict[str, str]:
    """Why no session is opened, for administrators; {} if sessions may be opened."""
    if not _is_administrator(request):
        return {}
    held = held_instance()
    return {} if held is None else {"reason": reason(held.place, held.found)}
