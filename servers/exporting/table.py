"""Events as CSV (RFC 4180) for spreadsheets. No cell is a formula, and none hides text (security: O15, O18, L6)."""

import csv
import json
from collections.abc import Sequence
from typing import Protocol

from servers.audit import query
from servers.kit.spreadsheet import cell
from servers.models import AuditEvent

COLUMNS = (
    "seq", "at", "event", "action", "outcome", "user", "ip", "server", "identity", "subject",
    "call", "request_id", "details", "digests", "hash",
)  # fmt: skip


class TextOutput(Protocol):
    """Writes text as it is, without changing line ends."""

    def write(self, text: str, /) -> int: ...


class Table:
    def __init__(self, file: TextOutput) -> None:
        self._writer = csv.writer(file, quoting=csv.QUOTE_ALL)

    def head(self) -> None:
        self._writer.writerow(COLUMNS)

    def rows(self, events: Sequence[AuditEvent]) -> None:
        self._writer.writerows(_row(event) for event in events)


def _row(event: AuditEvent) -> list[str]:
    body = query.readable_body(event)
    cells = [
        str(event.seq),
        event.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        query.action_word(event.action),
        event.action,
        event.outcome,
        event.actor_name,
        event.ip,
        event.server_name,
        event.identity_name,
        event.subject,
        str(event.call_uid or ""),
        event.request_id,
        json.dumps(body["details"], ensure_ascii=False),
        json.dumps(body["digests"], ensure_ascii=False),
        event.hash,
    ]
    return [cell(text) for text in cells]
