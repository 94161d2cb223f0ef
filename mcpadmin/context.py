from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from servers.audit.proof import alarms
from servers.forwarding.board import stalled
from servers.instance import held as held_instance
from servers.instance import reason


def instance(request: HttpRequest) -> dict[str, Any]:
    """What every page shows of this installation."""
    return {
        "instance_name": settings.INSTANCE_NAME,
        "instance_hold": SimpleLazyObject(lambda: _hold(request)),
        "audit_alarms": SimpleLazyObject(lambda: alarms.standing() if _is_administrator(request) else []),
        "stalled_sinks": SimpleLazyObject(lambda: stalled() if _is_administrator(request) else []),
        "commands_unconfined": SimpleLazyObject(lambda: settings.STDIO_UNCONFINED and _is_administrator(request)),
    }


def _is_administrator(request: HttpRequest) -> bool:
    user = getattr(request, "user", None)
    return user is not None and user.is_authenticated and user.is_superuser


def _hold(request: HttpRequest) -> dict[str, str]:
    """Why no session is opened, for administrators; {} when it is all right."""
    if not _is_administrator(request):
        return {}
    held = held_instance()
    return {} if held is None else {"reason": reason(held.place, held.found)}
