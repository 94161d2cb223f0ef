"""One line of the Protocol or Network tab, for the page and for its live updates."""

from typing import Any

from django.urls import reverse

from servers.kit.visible import visible_text
from servers.kit.words import format_bytes, format_duration
from sessions.enums import WireDirection, WireKind
from sessions.models import WireMessage
from sessions.wire import reading
from sessions.wire.reading import ExchangeTraffic, WirePage

TARGET_CHARS = 200


def row(message: WireMessage) -> dict[str, Any]:
    """`tone` is one of the kit's. `pair` is the same for a request and its response. Contains nothing that only readers
    of payloads may see."""
    word, tone = outcome(message)
    kind = WireKind(message.kind)
    return {
        "seq": message.seq,
        "at": message.at.isoformat(),
        "direction": message.direction,
        "kind": message.kind,
        "is_message": kind.is_message,
        "method": visible_text(message.method),
        "target": visible_text(message.target[:TARGET_CHARS]),
        "id": visible_text(message.rpc_id),
        "word": word,
        "tone": tone,
        "duration": "" if message.duration_ms is None else format_duration(message.duration_ms),
        "size": "" if kind == WireKind.DROPPED else format_bytes(message.size),
        "pair": _pair(message),
        "call": reverse("calls:detail", args=[message.call_uid]) if message.call_uid else "",
        "connection": message.connection,
        "exchange": "" if message.exchange is None else f"{message.connection} {message.exchange}",
        "bytes": message.size,
        "is_stream": kind == WireKind.EXCHANGE and reading.is_stream(message),
    }


def paired_row(message: WireMessage, page: WirePage) -> dict[str, Any]:
    """A request with its response, followed by what belongs to its call."""
    found = row(message)
    if message.kind == WireKind.REQUEST:
        response = page.responses.get(message.seq)
        if response is not None:
            of_response = row(response)
            found |= {name: of_response[name] for name in ("word", "tone", "duration", "size")}
        elif message.connection == page.connection:
            found |= {"word": "Pending", "tone": "run", "pending": True}
        else:
            found |= {"word": "No response", "tone": "warn"}
    found["children"] = [paired_row(child, page) for child in page.children.get(message.seq, ())]
    return found


def network_row(message: WireMessage, carried: ExchangeTraffic, connection: int) -> dict[str, Any]:
    """An HTTP exchange with the messages that it carried. `connection`: the one that is open."""
    found = row(message)
    received = max(message.size, carried.received)
    stream = ""
    if found["is_stream"]:
        is_open = not carried.ended and not message.size and message.connection == connection
        stream = "Stream open" if is_open else "Stream ended" if carried.ended or message.size else "Stream"
        if carried.end_fault:
            stream = f"Stream lost: {carried.end_fault.replace('_', ' ')}"
    return found | {
        "sent_bytes": carried.sent,
        "received_bytes": received,
        "sent": format_bytes(carried.sent) if carried.sent else "",
        "size": "" if message.kind == WireKind.DROPPED else format_bytes(received),
        "stream": stream,
        "stream_tone": "bad" if carried.end_fault else "run" if stream == "Stream open" else "",
        "messages": carried.messages,
        "attempt": carried.attempt if carried.attempt > 1 else "",
    }


def outcome(message: WireMessage) -> tuple[str, str]:
    """A word and its tone."""
    kind = WireKind(message.kind)
    if kind == WireKind.DROPPED:
        return f"{message.size:,} not recorded", "warn"
    if kind in (WireKind.EXCHANGE, WireKind.AUTHORIZATION):
        return _status(message)
    if kind == WireKind.ERROR:
        return f"Error {visible_text(message.fault)}".strip(), "bad"
    if kind == WireKind.RESULT:
        return ("Tool error", "bad") if message.fault else ("Result", "ok")
    tone = "bad" if kind == WireKind.INVALID or message.fault else ""
    return kind.label, tone


def _status(message: WireMessage) -> tuple[str, str]:
    if message.status is None:
        return (message.fault or "no response").replace("_", " ").capitalize(), "bad"
    if message.fault:
        return f"{message.status}, {message.fault.replace('_', ' ')}", "bad"
    return str(message.status), "ok" if message.status < 300 else "warn" if message.status < 400 else "bad"


def _pair(message: WireMessage) -> str:
    """The same key for a request and its response. Each side numbers its own requests."""
    if not message.rpc_id:
        return ""
    is_sent, is_request = message.direction == WireDirection.SENT, message.kind == WireKind.REQUEST
    side = "ours" if is_sent == is_request else "theirs"
    return visible_text(f"{message.connection} {side} {message.rpc_id}")
