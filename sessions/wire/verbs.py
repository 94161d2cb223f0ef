"""What users may do with a recorded message: copy it in several formats, export it with others, or send it again."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from servers.audit.acts import audited
from servers.audit.record import Actor, ServerRef
from servers.crypto import SealError
from servers.enums import AuditAction, TransportKind
from servers.models import Server
from sessions.enums import WireDirection, WireKind
from sessions.models import McpSession, WireMessage
from sessions.wire import reading, snippets
from sessions.wire.reading import MessageFilter, WireDetails

#: maximum number of messages in one export
EXPORTED = 50_000
_BATCH = 200


@dataclass(frozen=True)
class MessageVerbs:
    """An empty text means not offered. `repeat` and `again` are URLs for a POST, `edit` for a GET."""

    json: str = ""
    curl: str = ""
    curl_label: str = "Copy as curl"
    python: str = ""
    repeat: str = ""
    edit: str = ""
    again: str = ""


def verbs(server: Server, session: McpSession | None, details: WireDetails, readable: bool) -> MessageVerbs:
    message = details.message
    text = whole(message) if readable else ""
    is_sent = message.direction == WireDirection.SENT and message.kind in (WireKind.REQUEST, WireKind.NOTIFICATION)
    found: dict[str, str] = {"json": text}
    if is_sent and text:
        found["python"] = snippets.python(server, message, text) if message.kind == WireKind.REQUEST else ""
        if server.transport == TransportKind.STDIO:
            opening = snippets.opening_of(message.method, session.era if session else "")
            found |= {"curl": snippets.pipe(server, text, opening), "curl_label": "Copy as command"}
    exchange = message if message.kind == WireKind.EXCHANGE else details.exchange
    over_http = exchange is not None and exchange.kind == WireKind.EXCHANGE and server.transport != TransportKind.STDIO
    if exchange is not None and over_http and readable and (is_sent or exchange is message):
        sent = None if text else sent_in(details)
        found["curl"] = _curl(exchange, text or (whole(sent) if sent is not None else ""))
    return MessageVerbs(**found)


def _curl(exchange: WireMessage, text: str) -> str:
    if exchange.status == 101 or exchange.target.startswith("ws"):
        return ""
    return snippets.curl(exchange.target, exchange.method, reading.headers(exchange), text)


def sent_in(details: WireDetails) -> WireMessage | None:
    """The message that an HTTP exchange sent, if it sent exactly one: the body of its command."""
    if details.message.kind != WireKind.EXCHANGE:
        return None
    sent = [one for one in details.carried if one.direction == WireDirection.SENT]
    return WireMessage.objects.get(pk=sent[0].pk) if len(sent) == 1 else None


def whole(message: WireMessage) -> str:
    """The message as JSON on one line; empty if it was cut or cannot be read."""
    if message.cut:
        return ""
    try:
        text = reading.text(message)
        return snippets.as_json(text) if text else ""
    except (SealError, ValueError, RecursionError):
        return ""


# --- export ---------------------------------------------------------------------------------------------------------
def exported(actor: Actor, server: Server, chosen: MessageFilter) -> Iterator[bytes]:
    """Record the export, then yield one JSON object per line, oldest first: at most the newest EXPORTED that match,
    read in small parts. For readers of payloads, or of their own session."""
    rows, numbers = reading.matching(server, chosen, EXPORTED)
    with audited(actor) as trail:
        details: dict[str, Any] = {name: value for name in chosen.NAMES if (value := getattr(chosen, name))}
        trail.note(AuditAction.WIRE_EXPORT, ServerRef.of(server), server.name, details)
    return _lines(rows, numbers[::-1])


def _lines(rows: QuerySet[WireMessage], numbers: list[int]) -> Iterator[bytes]:
    for at in range(0, len(numbers), _BATCH):
        part = rows.filter(seq__in=numbers[at : at + _BATCH]).order_by("seq")
        yield b"".join(map(_line, part))


def _line(row: WireMessage) -> bytes:
    text = whole(row)
    found: dict[str, Any] = {
        "seq": row.seq,
        "at": row.at.isoformat(),
        "connection": row.connection,
        "transport": row.transport,
        "direction": row.direction,
        "kind": row.kind,
        "method": row.method,
        "target": row.target,
        "call": str(row.call_uid) if row.call_uid else None,
        "fault": row.fault,
        "duration_ms": row.duration_ms,
        "size": row.size,
        "message": json.loads(text) if text else None,
    }
    if row.cut:
        found["cut"] = True
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"
