"""What rows beside an erased payload hold of its words."""

from collections.abc import Collection

from django.db.models import Q

from sessions.models import Call, Question
from sessions.wire import erasing


def forget_copies(payload_ids: Collection[int]) -> None:
    """In the transaction of the erasure. A server's error often quotes arguments, a question's summary its text."""
    calls = Call.objects.filter(
        Q(arguments__in=payload_ids) | Q(result__in=payload_ids) | Q(late_result__in=payload_ids)
    )
    erasing.forget_contents(calls.values_list("uid", flat=True))
    calls.update(error_message="", error_data="", schema_violation="", progress_message="")
    Question.objects.filter(question__in=payload_ids).update(summary="")
