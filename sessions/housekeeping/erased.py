"""Erases what other rows contain of an erased payload's text. The retention erases thousands, and a call may have to
wait for each of its transactions: so this needs few statements, without the ORM."""

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from django.db.models import Max, Min, Q, QuerySet
from django.utils import timezone

from servers.sql import database
from sessions.enums import LogSource
from sessions.mcp.core.refusals import without_words
from sessions.models import Call, LogLine, McpSession, Question, ServerTask
from sessions.wire import erasing

_CALLS, _QUESTIONS, _TASKS = (model._meta.db_table for model in (Call, Question, ServerTask))
_LINKS = ("arguments_id", "result_id", "late_result_id")
#: the text of a log line that was erased
ERASED: Final = "[erased]"
#: a line may arrive this long after the answer that it belongs to
_LATE: Final = timedelta(seconds=5)


def forget_copies(payload_ids: Collection[int], *, everywhere: bool) -> list[int]:
    """Call in the transaction of the erasure. A server's error often quotes arguments, as does the status of a task; a
    question's summary quotes its text, and the recorded wire all of it. `everywhere`: also what names no call and
    arrived while one of them ran, such as lines of the log; the retention leaves that to its own limits. Returns the
    keys of the calls that the payloads belong to.
    """
    if not payload_ids:
        return []
    ids = list(payload_ids)
    marks = ", ".join(["%s"] * len(ids))
    of_them = " OR ".join(f"{link} IN ({marks})" for link in _LINKS)
    with database().cursor() as cursor:
        cursor.execute(
            f"UPDATE {_CALLS} SET error_message = '', error_data = '', schema_violation = '', progress_message = '', "  # noqa: S608  # names of our own models
            f"preview = CASE WHEN arguments_id IN ({marks}) THEN '' ELSE preview END WHERE {of_them} RETURNING id, uid, detail",
            ids * (len(_LINKS) + 1),
        )
        calls = cursor.fetchall()
        for key, _, detail in calls:
            if detail and (kept := without_words(detail)) != detail:
                cursor.execute(f"UPDATE {_CALLS} SET detail = %s WHERE id = %s", [kept, key])  # noqa: S608  # the same
        if calls:
            cursor.execute(
                f"UPDATE {_TASKS} SET message = '', detail = '' WHERE call_id IN ({', '.join(['%s'] * len(calls))})",  # noqa: S608  # the same
                [key for key, _, _ in calls],
            )
        cursor.execute(f"UPDATE {_QUESTIONS} SET summary = '' WHERE question_id IN ({marks})", ids)  # noqa: S608  # the same
    erasing.forget_contents([uid for _, uid, _ in calls])
    keys = [int(key) for key, _, _ in calls]
    if everywhere:
        _forget_surroundings(ids, keys)
    return keys


def _forget_surroundings(payload_ids: Collection[int], call_ids: Collection[int]) -> None:
    questions = Question.objects.filter(Q(question__in=payload_ids) | Q(answer__in=payload_ids))
    asked = questions.exclude(call=None).order_by().values_list("call", flat=True)
    calls = Call.objects.filter(pk__in={*call_ids, *asked}).order_by()
    erasing.forget_calls(list(calls.values_list("uid", flat=True)))
    erasing.forget_readings(payload_ids)
    erasing.forget_requests(payload_ids)
    _forget_lines(calls)
    _forget_tails(calls)


def _forget_lines(calls: QuerySet[Call]) -> None:
    """Lines of these calls, and those of the same logs that name no call and came while one of them ran: stderr never
    names one. Our own lines quote no content."""
    logs = calls.exclude(sent_at=None).exclude(personal=True, identity=None).values("server", "identity", "personal")
    for log in logs.annotate(began=Min("sent_at"), ended=Max("finished_at")):
        identity = log["identity"] if log["personal"] else None
        lines = LogLine.objects.filter(server=log["server"], identity=identity).exclude(source=LogSource.HOST)
        until = (log["ended"] or timezone.now()) + _LATE
        lines.filter(
            Q(call_uid=None) | Q(call_uid__in=calls.values("uid")), at__gte=log["began"], at__lte=until
        ).update(text=ERASED, logger="")


def _forget_tails(calls: QuerySet[Call]) -> None:
    """Erase the stderr that the page of a session shows if the session has failed since."""
    for session, began in calls.exclude(session=None).values_list("session").annotate(Min("sent_at")):
        if began is not None:
            McpSession.objects.filter(pk=session, fault_at__gte=began).update(stderr_tail="")
