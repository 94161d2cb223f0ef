"""Records: what a receiver gets of an event, in three formats, and that no event can break one."""

import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from servers.audit.record import SYSTEM, Event, record_many
from servers.enums import AuditAction, AuditOutcome
from servers.forwarding import records
from servers.forwarding.records import SYSLOG_BYTES, Record, Source
from servers.json.canonical import canonical
from servers.models import AuditEvent

pytestmark = pytest.mark.django_db
SOURCE = Source("production", "mcp.example.com", "1.0")
NOW = datetime(2026, 11, 24, 15, 0, 0, 250_000, tzinfo=UTC)
#: escape sequences, new lines, bidirectional controls, tag characters, C1, quotes, a formula, a second message
HOSTILE = '\x1b]8;;http://e\x07 \r\n<110>1 - - \u202e\u2028\u200b\U000e0041\x85\x9b"]\\ =HYPERLINK(1) ä 漢'
SYSLOG = re.compile(
    rb"<(\d{1,3})>1 (\S+) (\S{1,255}) (\S{1,48}) (\S{1,128}) (\S{1,32}) (\[mcpadmin@32473 [^\]]*\]|-) (.*)", re.DOTALL
)


def recorded(subject: str = "x", outcome: AuditOutcome = AuditOutcome.OK, **details: Any) -> Record:
    record_many([Event(AuditAction.CALL_FINISH, outcome, SYSTEM, subject=subject, details=details)])
    row = AuditEvent.objects.order_by("-seq").values_list("seq", "hash", "body", "at", "action", "outcome")[0]
    return Record(*row)


@pytest.mark.parametrize("lines", [True, False])
def test_an_http_item_holds_the_hashed_text_unchanged(lines: bool) -> None:
    made = [recorded(HOSTILE, note=HOSTILE), recorded("second")]
    text = records.http_body(records.http_items(made), lines=lines).decode()
    found = [json.loads(line) for line in text.split("\n") if line] if lines else json.loads(text)
    assert [(item["type"], item["seq"], item["hash"]) for item in found] == [
        ("audit.event", record.seq, record.hash) for record in made
    ]
    assert all(hashlib.sha256(canonical(item["event"]).encode()).hexdigest() == item["hash"] for item in found)
    assert found[0]["event"]["subject"] == HOSTILE


def test_an_otlp_record_carries_number_hash_and_the_hashed_text() -> None:
    record = recorded("create_issue", AuditOutcome.TOOL_ERROR)
    request = json.loads(records.otlp_body([record], SOURCE, NOW))
    (resource,) = request["resourceLogs"]
    names = {item["key"]: item["value"]["stringValue"] for item in resource["resource"]["attributes"]}
    assert (names["service.name"], names["service.instance.id"]) == ("mcpadmin", "production")
    (log,) = resource["scopeLogs"][0]["logRecords"]
    values = {item["key"]: item["value"] for item in log["attributes"]}
    assert values["mcpadmin.audit.seq"] == {"intValue": str(record.seq)}
    assert hashlib.sha256(log["body"]["stringValue"].encode()).hexdigest() == record.hash
    assert (log["severityNumber"], log["eventName"]) == (17, "call:tool:finish")
    at = int(log["timeUnixNano"])
    assert (at // 1_000) == int(record.at.timestamp()) * 1_000_000 + record.at.microsecond
    assert "mcpadmin.server.name" not in values, "empty values are left out"


def test_a_syslog_message_is_one_line_of_rfc_5424_whatever_the_event_says() -> None:
    record = recorded(HOSTILE, AuditOutcome.DENIED, note=HOSTILE)
    (message,) = records.syslog_messages([record], SOURCE)
    found = SYSLOG.fullmatch(message)
    assert found is not None
    assert int(found[1]) == 13 * 8 + 4
    assert found[6] == b"call:tool:finish"
    assert f'seq="{record.seq}" hash="{record.hash}"'.encode() in found[7]
    text = found[8].decode()
    assert not re.search("[\x00-\x1f\x7f-\x9f\u200b\u2028\u202e\U000e0000-\U000e0fff]", text)
    assert "ä 漢" in text
    assert hashlib.sha256(canonical(json.loads(text)).encode()).hexdigest() == record.hash


def test_a_long_event_is_shortened_and_stays_json() -> None:
    record = recorded("x", note="y" * 20_000)
    (message,) = records.syslog_messages([record], SOURCE)
    assert len(message) <= SYSLOG_BYTES
    found = SYSLOG.fullmatch(message)
    assert found is not None
    event = json.loads(found[8])
    assert (event["shortened"], event["details"], event["subject"]) == (True, None, "x")
    assert record.hash.encode() in found[7]


DAMAGED = ["{", "[]", '"text"', "", '{"actor":7,"server":[]}', "[" * 100_000, '"' + "\x1b" * 20_000]


@pytest.mark.parametrize("body", DAMAGED, ids=range(len(DAMAGED)))
def test_an_event_whose_body_was_damaged_is_marked_and_keeps_none_of_the_others_back(body: str) -> None:
    good = recorded("x")
    damaged = replace(recorded("y"), body=body)
    readable = body.startswith('{"')
    for lines in (True, False):
        text = records.http_body(records.http_items([damaged, good]), lines=lines).decode()
        first, second = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
        assert (first["seq"], first.get("unreadable", False)) == (damaged.seq, not readable)
        assert readable or (first["event"], first["body"]) == (None, body)
        assert second["event"] == json.loads(good.body)
    request = json.loads(records.otlp_body([damaged, good], SOURCE, NOW))
    first, second = request["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    mark = {"key": "mcpadmin.audit.unreadable", "value": {"boolValue": True}}
    assert (mark in first["attributes"], mark in second["attributes"]) == (not readable, False)
    assert (first["body"]["stringValue"], second["body"]["stringValue"]) == (body, good.body)
    message, _ = records.syslog_messages([damaged, good], SOURCE)
    assert len(message) <= SYSLOG_BYTES
    found = SYSLOG.fullmatch(message)
    assert found is not None
    assert (b'unreadable="true"' in found[7]) is not readable


def test_the_host_of_a_message_is_one_word() -> None:
    (message,) = records.syslog_test(Source("x", "a host\nwith lines", "1"), NOW)
    assert message == b"<110>1 2026-11-24T15:00:00.250000Z a_host_with_lines mcpadmin - test - Test of this sink."
