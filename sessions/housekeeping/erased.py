"""What rows beside an erased payload hold of its words."""

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from django.db.models import Max, Min, Q, QuerySet
from django.utils import timezone

from sessions.enums import LogSource
from sessions.mcp.core.refusals import without_words
from sessions.models import Call, LogLine, Question
from sessions.wire import erasing

#: the text of a log line that was erased
ERASED: Final = "[erased]"
#: a line may arrive this long after the answer that it belongs to
_LATE: Final = timedelta(seconds=5)


def forget_copies(payload_ids: Collection[int]) -> None:
    """In the transaction of the erasure. A server's error often quotes arguments, its log too, a question's summary its
    text; the recorded wire has all of it."""
    questions = Question.objects.filter(Q(question__in=payload_ids) | Q(answer__in=payload_ids))
    calls = Call.objects.filter(
        Q(arguments__in=payload_ids) | Q(result__in=payload_ids) | Q(late_result__in=payload_ids)
    ).order_by()
    asked = questions.exclude(call=None).order_by()
    uids = {*calls.values_list("uid", flat=True), *asked.values_list("call__uid", flat=True)}
    erasing.forget_calls(uids)
    erasing.forget_readings(payload_ids)
    _forget_lines(Call.objects.filter(uid__in=uids).order_by())
    calls.update(error_message="", error_data="", schema_violation="", progress_message="")
    for pk, detail in calls.exclude(detail="").values_list("pk", "detail"):
        Call.objects.filter(pk=pk).update(detail=without_words(detail))
    Question.objects.filter(question__in=payload_ids).update(summary="")


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
