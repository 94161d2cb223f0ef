"""The card of a call, for any template that shows one."""

from typing import Any
from uuid import UUID

from django import template
from django.template import Context
from django.urls import reverse
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

from sessions.calls import card
from sessions.calls.visibility import may_read, visible
from sessions.models import Call

register = template.Library()


@register.simple_tag(takes_context=True)
def read_card(context: Context, call: Call) -> card.Card:
    """If the socket renders for an audience, `may_read` of the context decides; otherwise the request's user does."""
    allowed: Any = context.get("may_read")
    if allowed is None:
        request = context.get("request")
        allowed = request is not None and may_read(request.user, call)
    return card.card_of(call, may_read=bool(allowed), brief=bool(context.get("brief")))


@register.simple_tag(takes_context=True)
def stored_call_url(context: Context, uid: UUID) -> str:
    """The URL of the call that an event names; empty if this person may not see that call."""
    found = visible(context["request"].user).filter(uid=uid).exists()
    return reverse("calls:detail", args=[uid]) if found else ""


@register.simple_tag
def tab_attributes(key: str, call_id: SafeString) -> SafeString:
    """The attributes of a result's tab, including the pane that it opens."""
    call_id = conditional_escape(call_id)
    pane = f"p-{key}-{call_id}"
    return mark_safe(f'id="t-{key}-{call_id}" data-bs-target="#{pane}" aria-controls="{pane}"')  # noqa: S308  # letters, digits and dashes


@register.simple_tag
def pane_attributes(key: str, call_id: SafeString) -> SafeString:
    call_id = conditional_escape(call_id)
    return mark_safe(f'id="p-{key}-{call_id}" aria-labelledby="t-{key}-{call_id}"')  # noqa: S308  # the same


@register.filter
def uuid_text(value: UUID) -> SafeString:
    """Formatted once for the many attributes of a card that contain it."""
    return mark_safe(str(UUID(str(value))))  # noqa: S308  # digits and dashes
