"""Checks each call's row against the audit events of the call."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from django.db.models import Min

from servers.audit.proof.notes import stamp
from servers.audit.proof.rows import TOLERANCE, Finding, Removed
from servers.enums import AuditAction
from servers.models import AuditEvent
from servers.storable import storable
from sessions.enums import UNSENT, CallState
from sessions.models import Call

_CHUNK = 500
_COLUMNS = (
    "uid", "user_id", "user_name", "server__uid", "server_name", "identity_name", "method", "target", "state", "epoch",
    "created_at", "sent_at", "finished_at", "arguments__digest", "result__digest", "late_result__digest",
)  # fmt: skip
_Row = dict[str, Any]
_Body = dict[str, Any]


class CallRows:
    """Registered when the app is ready."""

    def of_events(self, events: Sequence[tuple[AuditEvent, _Body]], removed: Removed) -> Finding | None:
        mine = [(event, body) for event, body in events if event.call_uid is not None and event.action in _CHECKS]
        rows = {row["uid"]: row for row in _rows({event.call_uid for event, _ in mine})}
        for event, body in mine:
            row = rows.get(event.call_uid)
            if row is None:
                # only the request decides: a call that was removed can have ended after the time that the removal names
                asked = event.action == AuditAction.CALL_REQUEST
                if removed.calls is not None and (not asked or event.at < removed.calls + TOLERANCE):
                    continue
                return Finding(event.seq, f"The call of event {event.seq} is missing.")
            try:
                wrong = _CHECKS[AuditAction(event.action)](row, body, event.at)
            except (TypeError, AttributeError):  # a value of the wrong type for its column
                wrong = "row"
            if wrong:
                return Finding(event.seq, f"The {wrong} of the call of event {event.seq} was changed.")
        return None

    def unrecorded(self, removed: Callable[[], Removed], on_batch: Callable[[], None]) -> Iterator[Finding]:
        last = 0
        calls = Call.objects.order_by("pk").values("pk", "uid", "state", "version", "created_at")
        while rows := cast("list[_Row]", list(calls.filter(pk__gt=last)[:_CHUNK])):
            last = rows[-1]["pk"]
            yield from _unaccounted(rows, removed)
            on_batch()

    def exported(self, events: Sequence[AuditEvent], last_seq: int) -> dict[UUID, dict[str, Any]]:
        asked = {event.call_uid for event in events if event.action == AuditAction.CALL_REQUEST}
        rows = list(_rows(asked - {None}))
        steps = _steps([row["uid"] for row in rows if row["state"] not in UNSENT])  # after the rows, to miss none
        return {row["uid"]: _exported(_as_of(last_seq, row, steps.get(row["uid"], {}))) for row in rows}


def _rows(uids: set[Any]) -> Iterator[_Row]:
    return iter(Call.objects.filter(uid__in=uids).values(*_COLUMNS)) if uids else iter(())


# --- one event ----------------------------------------------------------------------------------------------------------
def _agrees(row: _Row, name: str, body: _Body, at: datetime) -> bool:
    """Older events do not contain the times of the row, but were written within a few seconds of them."""
    found, named = row[name], body.get("context", {}).get(name)
    if found is None or named is None:
        return found is not None and abs(found - at) <= TOLERANCE
    return bool(stamp(found) == named)


def _request(row: _Row, body: _Body, at: datetime) -> str:
    actor, server = body["actor"], body["server"] or {}
    if row["user_name"] != actor["name"] or row["user_id"] not in (None, actor["id"]):
        return "caller"
    if row["server_name"] != server.get("name") or str(row["server__uid"] or server.get("uid")) != server.get("uid"):
        return "server"
    if row["identity_name"] != body["identity"]:
        return "identity"
    if storable(row["target"], 300) != body["subject"] or row["method"] != body["details"].get("method"):
        return "target"
    if row["arguments__digest"] != body["digests"].get("arguments"):
        return "reference to the arguments"
    return "" if _agrees(row, "created_at", body, at) else "time of request"


def _sent(row: _Row, body: _Body, at: datetime) -> str:
    """Check only the first attempt: later ones do not change the row."""
    if body["details"].get("attempt") != 1:
        return ""
    if row["epoch"] != body["details"].get("epoch"):
        return "epoch"
    return "" if _agrees(row, "sent_at", body, at) else "time of sending"


def _finished(row: _Row, body: _Body, at: datetime) -> str:
    details, digest = body["details"], body["digests"].get("result")
    if details.get("late"):
        return "" if row["late_result__digest"] == digest else "reference to the late result"
    if row["state"] != details.get("state"):
        return "state"
    if row["result__digest"] != digest:
        return "reference to the result"
    return "" if _agrees(row, "finished_at", body, at) else "end time"


_CHECKS: dict[str, Callable[[_Row, _Body, datetime], str]] = {
    AuditAction.CALL_REQUEST: _request,
    AuditAction.CALL_SEND: _sent,
    AuditAction.CALL_FINISH: _finished,
}


# --- rows without events ------------------------------------------------------------------------------------------------
def _unaccounted(rows: list[_Row], removed: Callable[[], Removed]) -> Iterator[Finding]:
    """Skip rows that changed while they were read: the next verification checks them."""
    uids = [row["uid"] for row in rows]
    events: dict[UUID, set[str]] = {}
    found = AuditEvent.objects.filter(call_uid__in=uids, action__in=_CHECKS)
    for uid, action, body in found.values_list("call_uid", "action", "body"):
        if uid is not None and not (action == AuditAction.CALL_FINISH and '"late":true' in body):
            events.setdefault(uid, set()).add(action)
    unaccounted = [row for row in rows if _without_event(row, events.get(row["uid"], set()), Removed())]
    # read after the events: whatever was cut in the meantime had already been signed
    signed = removed() if unaccounted else Removed()
    for row in unaccounted:
        if wrong := _without_event(row, events.get(row["uid"], set()), signed):
            now = Call.objects.filter(pk=row["pk"]).values_list("version", flat=True).first()
            if now == row["version"]:
                yield Finding(None, wrong)


def _without_event(row: _Row, actions: set[str], removed: Removed) -> str:
    cut = removed.cut_until is not None and row["created_at"] <= removed.cut_until + TOLERANCE
    if AuditAction.CALL_REQUEST not in actions and not cut:
        return f"No event records the request for the call {row['uid']}, made at {row['created_at']:%Y-%m-%d %H:%M:%S} UTC."
    if cut and not actions:
        return ""
    state = CallState(row["state"]) if row["state"] in CallState.values else None
    if state is None or state.final != (AuditAction.CALL_FINISH in actions):
        return f"No event records that the call {row['uid']} became {row['state']}."
    if (state == CallState.SENT) and AuditAction.CALL_SEND not in actions:
        return f"No event records that the call {row['uid']} was sent."
    return ""


# --- export -------------------------------------------------------------------------------------------------------------
def _steps(uids: list[UUID]) -> dict[UUID, dict[str, int]]:
    """By call uid: the numbers of the events that sent and ended the call, by action. A late result follows the end."""
    found: dict[UUID, dict[str, int]] = {}
    wanted = AuditEvent.objects.filter(call_uid__in=uids, action__in=[AuditAction.CALL_SEND, AuditAction.CALL_FINISH])
    for uid, action, first in wanted.order_by().values_list("call_uid", "action").annotate(Min("seq")) if uids else ():
        found.setdefault(cast("UUID", uid), {})[action] = first
    return found


def _as_of(last_seq: int, row: _Row, steps: dict[str, int]) -> _Row:
    """The row as it was when the log ended with event `last_seq`: rows are read later. A row that no event accounts for
    stays as it is, so that a verification finds it."""
    sent, ended = steps.get(AuditAction.CALL_SEND), steps.get(AuditAction.CALL_FINISH)
    if ended is not None and ended > last_seq:
        state = CallState.REQUESTED if sent is None else CallState.SENT
        row = row | {"state": state.value, "result__digest": None, "finished_at": None}
    if sent is not None and sent > last_seq:
        row = row | {"state": CallState.REQUESTED.value, "epoch": 0, "sent_at": None}
    return row


def _exported(row: _Row) -> dict[str, Any]:
    return {
        "uid": str(row["uid"]),
        "user": row["user_name"],
        "server": row["server_name"],
        "identity": row["identity_name"],
        "method": row["method"],
        "target": row["target"],
        "state": row["state"],
        "epoch": row["epoch"],
        "arguments": row["arguments__digest"],
        "result": row["result__digest"],
        **{name: stamp(row[name]) if row[name] else None for name in ("created_at", "sent_at", "finished_at")},
    }
