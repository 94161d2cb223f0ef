"""Ends calls, requests for approval and server requests that were not sent, approved or answered by their deadline.
Runs inside the caller's transaction."""

from django.db.models import QuerySet
from django.utils import timezone

from servers.audit.record import Event
from sessions.approvals import ending as approvals
from sessions.calls import session_pausing
from sessions.calls.final_states import BATCH, BUSY, NOT_READY, FinalState, announce, end_now, finish_event
from sessions.enums import CallState, SessionState
from sessions.inbox import questions
from sessions.models import Call


def expire() -> list[Event]:
    """End calls whose deadline passed or whose session was paused before they were sent, and expired questions and
    approvals."""
    waiting = Call.objects.filter(state=CallState.REQUESTED)
    late, paused = waiting.filter(deadline__lte=timezone.now()), waiting.filter(session__paused=True)
    ready = {"session__state": SessionState.READY}
    ended = _ended(late.filter(**ready), BUSY) + _ended(late.exclude(**ready), NOT_READY)
    ended += _ended(paused, session_pausing.PAUSED_BEFORE)
    return ended + questions.expire_overdue() + approvals.expire_overdue()


def _ended(due: QuerySet[Call], final: FinalState) -> list[Event]:
    calls = end_now(list(due.values_list("uid", flat=True)[:BATCH]), final)
    for call in calls:
        announce(call)
    return [finish_event(call, final) for call in calls]
