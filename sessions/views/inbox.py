"""The inbox: calls that need approval, servers' requests to people, one page per question, and the ways to answer."""

from collections.abc import Callable
from typing import Any, get_args
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access
from servers.audit import payloads
from servers.audit.record import Actor, ServerRef
from servers.numbers import whole_number
from servers.privacy import payload_readings
from servers.privacy.payload_readings import PayloadContext
from sessions.approvals import reading as approvals
from sessions.enums import QuestionKind, QuestionState
from sessions.inbox import answering, reads
from sessions.inbox import card as question_card
from sessions.inbox.answering import Action, AuditUnavailable, SubmittedArguments, Unfit
from sessions.inbox.visit_address import read_address
from sessions.models import Question
from sessions.views.call_answers import as_file
from sessions.views.inbox_forms import ElicitationForm, SamplingForm, edits, posted

_SAID = {
    "accept": "Answer sent to {server}.",
    "decline": "Declined. {server} will be notified.",
    "cancel": "Dismissed. {server} may ask again.",
}


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Open questions first, the one that expires soonest at the top; then ended ones, newest first."""
    ended = question_card.ended_page(request.user, whole_number(request.GET.get("before", "")))
    questions, held = question_card.open_questions(request.user), approvals.open_rows(request.user)
    context = {
        "nav": "inbox",
        "questions": [question_card.card_of(request.user, row) for row in questions],
        "questions_total": question_card.open_total(request.user, questions),
        "approvals": held,
        "approvals_total": approvals.open_total(request.user, held),
        "decided": approvals.ended_page(request.user, whole_number(request.GET.get("decided", ""))),
        "ended": ended,
        "ended_cards": [question_card.card_of(request.user, row) for row in ended.rows],
        "permissions": access.permissions(request.user),
    }
    return render(request, "inbox/index.html", context)


@require_safe
def detail(request: HttpRequest, uid: UUID) -> HttpResponse:
    return _page(request, _question(request, uid))


def _question(request: HttpRequest, uid: UUID) -> Question:
    question = question_card.seen(request.user).filter(uid=uid).first()
    if question is None:
        raise Http404("This request does not exist, or you don't have access to it.")
    return question


def _page(
    request: HttpRequest, question: Question, form: ElicitationForm | SamplingForm | None = None, status: int = 200
) -> HttpResponse:
    card = question_card.card_of(request.user, question)
    if card.readable:
        _record_reading(Actor.of(request), question, answer=question_card.may_read_answer(request.user, question))
    context = {
        "nav": "inbox",
        "card": card,
        "question": question,
        "own_host": request.get_host(),
        "form": form if form is not None or not card.open or not card.readable else _blank_form(card),
        "unsent": form.typed if form is not None and not card.open else "",
        "given": question_card.answer_of(request.user, question),
        "may_read_answer": question_card.may_read_answer(request.user, question),
        "following": None if card.open else question_card.next_open(request.user, question.uid),
        "permissions": access.permissions(request.user),
    }
    return render(request, "inbox/detail.html", context, status=status)


@require_safe
def request_file(request: HttpRequest, uid: UUID) -> HttpResponse:
    """Everything that the server sent: the page shows only parts of long requests."""
    question = _question(request, uid)
    if not question_card.may_read(request.user, question):
        raise access.Denied("answer_question", question.server)
    _record_reading(Actor.of(request), question, answer=False)
    text = payloads.read(question.question)
    if text is None:
        raise Http404("This request was erased.")
    return as_file(text.encode("utf-8", "surrogatepass"), "application/json", f"request-{question.uid}.json")


def _record_reading(actor: Actor, question: Question, *, answer: bool) -> None:
    """Not while it is open (readers may answer), and not for the person who made the call or the one who answered."""
    call = question.call
    if question.state == QuestionState.OPEN or (call is not None and call.user_id == actor.id):
        return
    own = reads.answered_by(actor.id, actor.name, question)
    found = [] if own else [question.question, question.answer if answer else None]
    server = None if question.server is None else ServerRef.of(question.server)
    call_uid = None if call is None else call.uid
    payload_readings.record(actor, found, PayloadContext(server, question.identity_name, question.method, call_uid))


def _blank_form(card: question_card.QuestionCard) -> Any:
    if card.question.kind == QuestionKind.FORM:
        return ElicitationForm(card.params)
    return SamplingForm() if card.question.kind == QuestionKind.SAMPLING else None


# --- acting ----------------------------------------------------------------------------------------------------------
@require_POST
def take(request: HttpRequest, uid: UUID) -> HttpResponse:
    done = "Assigned to you. Others can still answer."
    return _done(request, uid, answering.take, done, "This request was closed or assigned to someone else.")


@require_POST
def more_time(request: HttpRequest, uid: UUID) -> HttpResponse:
    done = "Deadline extended and assigned to you. Others can still answer."
    late = "This request is closed, cannot be extended, or someone else just extended it."
    return _done(request, uid, answering.extend, done, late)


def _done(
    request: HttpRequest, uid: UUID, verb: Callable[[Actor, Any, Question], object], done: str, late: str
) -> HttpResponse:
    """`late`: the message if another person was faster or the question had ended."""
    question = _question(request, uid)
    try:
        first = verb(Actor.of(request), request.user, question)
    except AuditUnavailable as problem:
        messages.error(request, str(problem))
    else:
        messages.success(request, done) if first else messages.info(request, late)
    return _see_other(question)


@require_http_methods(["GET", "POST"])
def answer(request: HttpRequest, uid: UUID) -> HttpResponse:
    """A refused answer shows the form again as submitted, with the errors next to their fields.

    That page has this URL, and loads it again when the question ends or the reader reloads. So GET is the question's
    page.
    """
    question = _question(request, uid)
    if request.method == "GET":
        return _page(request, question)
    access.require(request.user, "answer_question", question.server)
    if question.kind == QuestionKind.FORM and edits(request.POST):
        return _page(request, question, ElicitationForm(answering.params_of(question), request.POST))
    action = _action(request)
    if question.kind == QuestionKind.URL and action == "accept" and _refuses_visit(question):
        return _refused(
            request, question, None, Unfit("This link is blocked, so it cannot be accepted. Decline or cancel.")
        )
    form = SamplingForm(request.POST) if question.kind == QuestionKind.SAMPLING and action == "accept" else None
    if form is not None and not form.is_valid():
        return _page(request, question, form, 422)
    try:
        first = answering.answer(Actor.of(request), request.user, question, action, _given(request, question, form))
    except Unfit as problem:
        return _refused(request, question, form, problem)
    except AuditUnavailable as problem:
        messages.error(request, str(problem))
        return _again(request, question, form, {}, 503)
    arrived = _say(request, question, action, first)
    if arrived or action != "accept" or question.kind == QuestionKind.URL:
        return _see_other(question)
    return _again(request, _question(request, uid), form, {}, 409)  # nothing else keeps what the person typed


def _refuses_visit(question: Question) -> bool:
    return bool(read_address(answering.params_of(question).get("url")).refused)


def _action(request: HttpRequest) -> Action:
    word = request.POST.get("action")
    for action in get_args(Action):
        if word == action:
            return action
    raise Http404("Choose accept, decline or cancel.")


def _given(request: HttpRequest, question: Question, form: SamplingForm | None) -> SubmittedArguments | None:
    if form is not None:
        return form.given()
    return SubmittedArguments(form=posted(request.POST)) if question.kind == QuestionKind.FORM else None


def _refused(request: HttpRequest, question: Question, form: SamplingForm | None, problem: Unfit) -> HttpResponse:
    if form is not None:
        form.refuse(problem)
    elif not problem.errors:
        messages.error(request, problem.message)
    return _again(request, question, form, problem.errors, 422)


def _again(
    request: HttpRequest, question: Question, form: SamplingForm | None, errors: dict[str, list[str]], status: int
) -> HttpResponse:
    if question.kind == QuestionKind.FORM:
        return _page(request, question, ElicitationForm(answering.params_of(question), request.POST, errors), status)
    return _page(request, question, form, status)


def _say(request: HttpRequest, question: Question, action: Action, first: bool) -> bool:
    """Whether the server receives this answer."""
    if first:
        messages.success(request, _SAID[action].format(server=question.server_name))
    elif _answered_before(request, question, action):
        messages.info(request, "You have already sent this answer. Only the first one counts.")
    else:
        messages.info(request, "This request was closed before your answer arrived. Your answer was not sent.")
        return False
    return True


def _answered_before(request: HttpRequest, question: Question, action: Action) -> bool:
    """A double click: the same person, the same button."""
    question.refresh_from_db(fields=["state", "owner", "answered_by"])
    actor = Actor.of(request)
    return question.state == answering.STATES[action] and reads.answered_by(actor.id, actor.name, question)


def _see_other(question: Question) -> HttpResponseRedirect:
    response = redirect("inbox:detail", question.uid)
    response.status_code = 303
    return response
