"""Template tags of the inbox: the count in the sidebar, and the open questions of a call or a server."""

from datetime import datetime
from typing import Any

from django import template
from django.template import Context
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import mark_safe

from servers import access
from servers.kit.visible import visible_html, visible_text
from servers.kit.words import format_clock
from servers.models import Server
from sessions.approvals import reading as approvals
from sessions.enums import ApprovalState, CallState, QuestionKind, QuestionState
from sessions.inbox import card, reads, visit_address
from sessions.inbox.visit_address import VisitAddress
from sessions.models import Approval, Call, Question

register = template.Library()


def inbox_count(user: access.User) -> int:
    """Open questions, and calls of agents that wait for approval."""
    return card.open_count(user) + approvals.open_count(user)


@register.inclusion_tag("inbox/_nav.html", takes_context=True)
def inbox_nav(context: Context) -> dict[str, Any]:
    """The sidebar entry with what waits in the inbox; empty if the page does not exist. A page that also shows the
    number provides it as `inbox_count`."""
    try:
        url = reverse("inbox:list")
    except NoReverseMatch:
        return {"url": ""}
    user, count = context["request"].user, context.get("inbox_count")
    return {
        "url": url,
        "current": context.get("nav") == "inbox",
        "count": inbox_count(user) if count is None else count,
        "answers": card.may_answer(user),
    }


@register.simple_tag
def questions_of_call(call: Call) -> list[Question]:
    return card.waiting_for(call)


@register.simple_tag
def questions_of_no_call(call: Call) -> list[Question]:
    return reads.possibly_asked_by(call)


@register.simple_tag
def questions_of_server(server: Server) -> int:
    return card.open_of_server(server)


@register.inclusion_tag("calls/_pill.html")
def question_pill(state: str) -> dict[str, str]:
    tone, icon = card.LOOKS[state]
    return {"tone": tone, "icon": icon, "word": QuestionState(state).label}


_APPROVAL_LOOKS = {
    ApprovalState.OPEN: ("run", "hourglass"),
    ApprovalState.APPROVED: ("ok", "check"),
    ApprovalState.REFUSED: ("warn", "hand-stop"),
    ApprovalState.EXPIRED: ("warn", "clock-x"),
    ApprovalState.VOIDED: ("warn", "ban"),
    ApprovalState.CANCELLED: ("warn", "x"),
}


@register.inclusion_tag("calls/_pill.html")
def approval_pill(state: str) -> dict[str, str]:
    tone, icon = _APPROVAL_LOOKS[ApprovalState(state)]
    return {"tone": tone, "icon": icon, "word": ApprovalState(state).label}


@register.simple_tag
def approval_of_call(call: Call) -> Approval | None:
    """No query for a call that does not wait for approval."""
    if call.state != CallState.HELD:
        return None
    return Approval.objects.filter(call_id=call.pk).first()


@register.simple_tag
def question_end(question: Question) -> card.End:
    return card.end_of(question)


@register.filter
def shares_cookies(address: VisitAddress, own_host: str) -> bool:
    return visit_address.shares_cookies(address, own_host)


@register.filter
def question_icon(kind: str) -> str:
    return card.ICONS[QuestionKind(kind)]


@register.filter
def request_title(question: Question, form: str = "html") -> str:
    """The same words as in inbox.js. `form` is "text" where no markup is allowed."""
    words = _TITLES[QuestionKind(question.kind)]
    if form == "text":
        return words.format(visible_text(question.server_name))
    return format_html(words, mark_safe(visible_html(question.server_name)))  # noqa: S308 - visible_html escapes


@register.filter
def time_left(moment: datetime) -> str:
    """The same words as in countdown.js."""
    return format_clock(max(0, round((moment - timezone.now()).total_seconds())))


_TITLES = {
    QuestionKind.FORM: "Input request from “{}”",
    QuestionKind.URL: "“{}” wants you to open a link",
    QuestionKind.SAMPLING: "Sampling request from “{}”",
}
