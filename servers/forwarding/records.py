"""How receivers see events. Each record has the event's number and hash, so gaps and repeats are visible. Pure
functions.

The event itself is the text that was hashed. Where a format takes it as JSON, its bytes are unchanged: canonical JSON
(RFC 8785) of the parsed value is that text again.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from servers.enums import AuditOutcome
from servers.kit.visible import HIDDEN

#: syslog: facility "log audit" (13); we have no enterprise number, so the one for documentation (RFC 5612)
_FACILITY: Final = 13
_STRUCTURE: Final = "mcpadmin@32473"
#: RFC 5425 says that receivers should accept 8,192 bytes
SYSLOG_BYTES: Final = 8_192
#: for a body that is not JSON: escaped, each character takes up to twelve bytes
_UNREADABLE_CHARS: Final = 400
_ERROR, _WARNING, _INFO = 3, 4, 6
_SYSLOG_SEVERITY: Final = {
    AuditOutcome.FAILED: _ERROR,
    AuditOutcome.TOOL_ERROR: _ERROR,
    AuditOutcome.RPC_ERROR: _ERROR,
    AuditOutcome.DENIED: _WARNING,
    AuditOutcome.UNKNOWN: _WARNING,
}
#: OpenTelemetry logs data model: INFO, WARN, ERROR
_OTLP_SEVERITY: Final = {_INFO: (9, "INFO"), _WARNING: (13, "WARN"), _ERROR: (17, "ERROR")}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Record:
    """One event. `body`: the text that was hashed."""

    seq: int
    hash: str
    body: str
    at: datetime
    action: str
    outcome: str


@dataclass(frozen=True)
class Source:
    """This installation, as receivers see it."""

    name: str
    host: str
    version: str


def _read(body: str) -> dict[str, Any] | None:
    """None for a body that was damaged in the database. Such an event is forwarded as plain text, with a mark: the
    events after it must not wait for it."""
    try:
        event = json.loads(body)
    except (ValueError, TypeError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


# --- HTTP ----------------------------------------------------------------------------------------------------------------
def http_items(records: Iterable[Record]) -> list[str]:
    """JSON objects, without line breaks."""
    items = []
    for record in records:
        if _read(record.body) is None:
            event = f'null,"unreadable":true,"body":{json.dumps(record.body)}'
        else:
            event = record.body
        items.append(f'{{"type":"audit.event","seq":{record.seq},"hash":"{record.hash}","event":{event}}}')
    return items


def http_body(items: list[str], *, lines: bool) -> bytes:
    """NDJSON, or one JSON array."""
    text = "".join(f"{item}\n" for item in items) if lines else f"[{','.join(items)}]"
    return text.encode()


def http_test(source: Source, now: datetime) -> list[str]:
    return [json.dumps({"type": "audit.test", "instance": source.name, "at": _iso(now)}, separators=(",", ":"))]


# --- OTLP logs ------------------------------------------------------------------------------------------------------------
def otlp_body(records: Iterable[Record], source: Source, now: datetime) -> bytes:
    """ExportLogsServiceRequest in the JSON encoding of OTLP 1.x."""
    return _otlp([_otlp_record(record, now) for record in records], source)


def otlp_test(source: Source, now: datetime) -> bytes:
    record = _log_record(now, now, _INFO, "mcpadmin.test", "Test of this sink.", {})
    return _otlp([record], source)


def _otlp(records: list[dict[str, Any]], source: Source) -> bytes:
    resource = {
        "service.name": "mcpadmin",
        "service.version": source.version,
        "service.instance.id": source.name,
        "host.name": source.host,
    }
    scope = {"scope": {"name": "mcpadmin.audit"}, "logRecords": records}
    logs = {"resource": {"attributes": _attributes(resource)}, "scopeLogs": [scope]}
    return json.dumps({"resourceLogs": [logs]}, separators=(",", ":")).encode()


def _otlp_record(record: Record, now: datetime) -> dict[str, Any]:
    event = _read(record.body)
    unreadable, event = event is None, event or {}
    actor, server = (part if isinstance(part := event.get(name), dict) else {} for name in ("actor", "server"))
    attributes = {
        "mcpadmin.audit.seq": record.seq,
        "mcpadmin.audit.hash": record.hash,
        "mcpadmin.audit.action": record.action,
        "mcpadmin.audit.outcome": record.outcome,
        "mcpadmin.audit.unreadable": unreadable or None,
        "mcpadmin.audit.subject": event.get("subject"),
        "mcpadmin.server.name": server.get("name"),
        "mcpadmin.server.uid": server.get("uid"),
        "mcpadmin.identity": event.get("identity"),
        "mcpadmin.call": event.get("call"),
        "user.name": actor.get("name"),
        "client.address": actor.get("ip"),
    }
    return _log_record(record.at, now, _severity(record.outcome), record.action, record.body, attributes)


def _log_record(
    at: datetime, observed: datetime, severity: int, name: str, body: str, attributes: dict[str, Any]
) -> dict[str, Any]:
    number, text = _OTLP_SEVERITY[severity]
    return {
        "timeUnixNano": _nanoseconds(at),
        "observedTimeUnixNano": _nanoseconds(observed),
        "severityNumber": number,
        "severityText": text,
        "eventName": name,
        "body": {"stringValue": body},
        "attributes": _attributes(attributes),
    }


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Empty values are left out."""
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value not in (None, "")]


def _value(value: Any) -> dict[str, Any]:
    """64-bit integers are strings in OTLP's JSON."""
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}


def _nanoseconds(at: datetime) -> str:
    return str((at - _EPOCH) // timedelta(microseconds=1) * 1_000)


# --- syslog ---------------------------------------------------------------------------------------------------------------
def syslog_messages(records: Iterable[Record], source: Source) -> list[bytes]:
    """RFC 5424. The message is the event as JSON, with hidden characters escaped: it cannot break lines or
    terminals."""
    return [_syslog_message(record, source) for record in records]


def syslog_test(source: Source, now: datetime) -> list[bytes]:
    return [f"{_header(_INFO, now, source, 'test')} - Test of this sink.".encode()]


def _syslog_message(record: Record, source: Source) -> bytes:
    mark = ' unreadable="true"' if _read(record.body) is None else ""
    structure = f'[{_STRUCTURE} seq="{record.seq}" hash="{record.hash}" outcome="{record.outcome}"{mark}]'
    head = f"{_header(_severity(record.outcome), record.at, source, record.action)} {structure} "
    message = (head + visible_json(record.body)).encode()
    return message if len(message) <= SYSLOG_BYTES else (head + _shortened(record.body)).encode()


def _header(severity: int, at: datetime, source: Source, message_id: str) -> str:
    host, msgid = _printable(source.host, 255), _printable(message_id, 32)
    return f"<{_FACILITY * 8 + severity}>1 {_iso(at)} {host} mcpadmin - {msgid}"


def _shortened(body: str) -> str:
    """The event without its details, the only part that can be long; a receiver would cut the message anywhere."""
    event = _read(body)
    if event is None:
        return json.dumps(
            {"body": body[:_UNREADABLE_CHARS], "shortened": True, "unreadable": True}, separators=(",", ":")
        )
    return json.dumps({**event, "details": None, "shortened": True}, separators=(",", ":"))


def visible_json(text: str) -> str:
    """JSON text with the same value, in which characters that move a cursor or hide text are escaped."""
    return HIDDEN.sub(lambda run: json.dumps(run[0])[1:-1], text)


def _printable(text: str, most: int) -> str:
    return re.sub(r"[^\x21-\x7e]", "_", text)[:most] or "-"


def _severity(outcome: str) -> int:
    known = AuditOutcome(outcome) if outcome in AuditOutcome.values else AuditOutcome.OK
    return _SYSLOG_SEVERITY.get(known, _INFO)


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
