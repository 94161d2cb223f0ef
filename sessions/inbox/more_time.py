"""How much longer a question may wait: a person who reads slowly gets more time (WCAG 2.2, 2.2.1 Timing Adjustable)."""

from datetime import datetime, timedelta
from typing import Final

from django.conf import settings

from sessions.enums import CallState
from sessions.inbox.questions import MARGIN
from sessions.models import Question

#: how often the initial time may be added
TIMES: Final = 10
#: a smaller extension is not offered
LEAST: Final = timedelta(seconds=20)


def longer(question: Question) -> datetime | None:
    """The deadline after adding the initial time once more; None if that gains next to nothing.

    The call's own total time limits every extension. Needs `call` and `server` joined.
    """
    patience = timedelta(seconds=settings.INBOX_SECONDS)
    last = question.created_at + (1 + TIMES) * patience
    if question.server is not None:
        call = question.call  # the call of a task that is still followed has ended
        began = call.sent_at if call is not None and call.state == CallState.SENT else None
        total = timedelta(seconds=question.server.total_timeout_seconds)
        last = min(last, (began or question.created_at) + total - MARGIN)
    until = min(question.expires_at + patience, last)
    return until if until - question.expires_at >= LEAST else None
