"""The result of a completion, for the page that requested it."""

import json
from typing import Any
from uuid import UUID

from django.http import Http404, JsonResponse
from django.views.decorators.http import require_safe

from servers import access
from servers.audit import payloads
from servers.audit.record import Actor
from servers.kit.visible import visible_text
from servers.requests import WebRequest
from sessions.calls.payload_readings import record_reading
from sessions.calls.visibility import may_read
from sessions.mcp.core.methods import COMPLETE
from sessions.models import Call
from sessions.views.visible_calls import visible_call

#: limit of the specification; further values are dropped
VALUES = 100
VALUE_CHARS = 1_000


@require_safe
def values(request: WebRequest, uid: UUID) -> JsonResponse:
    """`{"state", "final", "values": [{"value", "shown"}], "more"}`. No values while it runs or if it failed."""
    call = visible_call(request, uid)
    if call.method != COMPLETE:
        raise Http404("This call is not a completion.")
    if not may_read(request.user, call):
        raise access.Denied("view_payload", call.server)
    record_reading(Actor.of(request), call, call.result)
    completion = _completion(call)
    found = [text for text in completion.get("values", []) if isinstance(text, str) and len(text) <= VALUE_CHARS]
    return JsonResponse(
        {
            "state": call.state,
            "final": call.finished_at is not None,
            "values": [{"value": text, "shown": visible_text(text)} for text in found[:VALUES]],
            "more": completion.get("hasMore") is True or len(found) > VALUES,
        }
    )


def _completion(call: Call) -> dict[str, Any]:
    text = payloads.read(call.result) if call.result is not None else None
    value = json.loads(text) if text else {}
    found = value.get("completion") if isinstance(value, dict) else None
    return found if isinstance(found, dict) and isinstance(found.get("values"), list) else {}
