"""The card of a call, wherever a template has a call."""

from typing import Any
from uuid import UUID

from django import template
from django.template import Context
from django.utils.safestring import SafeString, mark_safe

from sessions.domain import call_card
from sessions.domain.calls import may_read
from sessions.models import Call

register = template.Library()


@register.simple_tag(takes_context=True)
def read_card(context: Context, call: Call) -> call_card.Card:
    """Decided for the reader: by `may_read` where the socket renders for an audience, else by the request's user."""
    allowed: Any = context.get("may_read")
    if allowed is None:
        request = context.get("request")
        allowed = request is not None and may_read(request.user, call)
    return call_card.card_of(call, may_read=bool(allowed), brief=bool(context.get("brief")))


@register.filter
def uuid_text(value: UUID) -> SafeString:
    """Made once for the many attributes of a card that carry it."""
    return mark_safe(str(UUID(str(value))))  # noqa: S308  # digits and dashes
