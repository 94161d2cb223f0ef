"""The inbox wherever a template needs it: the count of the side bar, what a call or a server waits for."""

from datetime import datetime
from typing import Any

from django import template
from django.template import Context
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from servers.models import Server
from sessions.domain import question_card, visit_address
from sessions.domain.visit_address import VisitAddress
from sessions.enums import QuestionKind, QuestionState
from sessions.models import Call, Question

register = template.Library()


@register.inclusion_tag("sessions/inbox/_nav.html", takes_context=True)
def inbox_nav(context: Context) -> dict[str, Any]:
    """The entry of the side bar, with how many questions wait; nothing where there is no such page."""
    try:
        url = reverse("inbox:list")
    except NoReverseMatch:
        return {"url": ""}
    user = context["request"].user
    return {
        "url": url,
        "current": context.get("nav") == "inbox",
        "count": question_card.open_count(user),
        "answers": question_card.may_answer(user),
    }


@register.simple_tag
def questions_of_call(call: Call) -> list[Question]:
    return question_card.waiting_for(call)


@register.simple_tag
def questions_of_server(server: Server) -> int:
    return question_card.open_of_server(server)


@register.inclusion_tag("sessions/calls/_pill.html")
def question_pill(state: str) -> dict[str, str]:
    tone, icon = question_card.LOOKS[state]
    return {"tone": tone, "icon": icon, "word": QuestionState(state).label}


@register.filter
def shares_cookies(address: VisitAddress, own_host: str) -> bool:
    return visit_address.shares_cookies(address, own_host)


@register.filter
def question_icon(kind: str) -> str:
    return question_card.ICONS[QuestionKind(kind)]


@register.filter
def asks_for(kind: str) -> str:
    """What the question is, in words a reader knows: "demo asks … "."""
    return _ASKS[QuestionKind(kind)]


@register.filter
def time_left(moment: datetime) -> str:
    """As countdown.js writes it."""
    seconds = max(0, round((moment - timezone.now()).total_seconds()))
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


_ASKS = {
    QuestionKind.FORM: "asks a question",
    QuestionKind.URL: "asks you to open an address",
    QuestionKind.SAMPLING: "asks for a model's answer",
}
