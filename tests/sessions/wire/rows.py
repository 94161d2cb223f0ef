"""Rows of the recorded wire, as a worker leaves them."""

import json
from typing import Any

from django.utils import timezone

from servers.models import Server
from sessions.enums import WireDirection, WireKind
from sessions.models import WireMessage


def add_message(server: Server, kind: WireKind = WireKind.REQUEST, **fields: Any) -> WireMessage:
    """The next one of the shared session, or of that of `identity`. `body` may be a JSON value."""
    log = WireMessage.objects.filter(server=server, identity=fields.get("identity")).order_by("-seq")
    seq, position = log.values_list("seq", "position").first() or (0, 0)
    answers = kind in (WireKind.RESULT, WireKind.ERROR)
    body = fields.pop("body", {"jsonrpc": "2.0", "method": "ping", "id": 1})
    text = body if isinstance(body, str) else json.dumps(body)
    made = {
        "at": timezone.now(),
        "connection": 1,
        "transport": "stdio",
        "direction": WireDirection.RECEIVED if answers else WireDirection.SENT,
        "method": "tools/call",
        "rpc_id": "1",
        "size": len(text),
        "body": text,
    }
    values = made | {"seq": seq + 1, "position": position + len(text) + 300} | fields
    return WireMessage.objects.create(server=server, kind=kind, **values)
