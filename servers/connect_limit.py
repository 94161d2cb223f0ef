"""Limits how often one person may have mcpadmin connect to an address of their choice, to prevent network scans. The
audit log records every attempt; the limit counts those events.
"""

from datetime import timedelta
from math import ceil
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Q
from django.utils import timezone

from servers import limits
from servers.enums import AuditAction, AuditOutcome
from servers.models import AuditEvent

WINDOW = timedelta(minutes=1)
#: each server of an import counts: the next import has to wait, the one in progress does not
IMPORTED = (AuditAction.SERVER_REGISTER, AuditAction.SERVER_CHANGE)
WEBHOOKS = (AuditAction.SUBSCRIPTION_CHANGE,)
_ALWAYS = (AuditAction.SIGN_IN_BEGIN, AuditAction.OAUTH_CLIENT_READ)


class TooOften(ValidationError):
    def __init__(self, seconds: int) -> None:
        words = f"Too many addresses were tried in the last minute. {limits.stated('tries_per_minute')} Try again in {seconds} s."
        super().__init__(words, code="pace")
        self.seconds = seconds


def require(user: Any, *also: AuditAction) -> None:
    """Raises TooOften. `also`: what counts besides connection tests, sign-ins and documents of OAuth clients."""
    now, most = timezone.now(), limits.number("tries_per_minute")
    began = Q(action=AuditAction.CONNECTION_TEST, outcome=AuditOutcome.PENDING)  # its end is another event
    counted = began | Q(action__in=(*_ALWAYS, *also))
    tried = AuditEvent.objects.filter(counted, actor_id=user.pk, at__gt=now - WINDOW)
    newest = list(tried.order_by("-at").values_list("at", flat=True)[:most])
    if 0 < most <= len(newest):
        raise TooOften(max(1, ceil((newest[-1] + WINDOW - now).total_seconds())))
