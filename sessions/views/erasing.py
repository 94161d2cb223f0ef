"""Erases one payload, wherever it is shown. It is identified by its digest, as in the audit log."""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from servers import access
from servers.audit.record import Actor, ServerRef
from servers.enums import PayloadKind
from servers.models import Payload
from servers.privacy import erasing
from servers.privacy.erasing import StillNeeded
from servers.privacy.payload_readings import PayloadContext
from servers.requests import WebRequest
from sessions.calls import visibility
from sessions.calls.payload_readings import context_of
from sessions.enums import CallState, QuestionState
from sessions.models import Call, Question, ResourceVersion


class EraseForm(forms.Form):
    reason = forms.CharField(
        label="Reason",
        max_length=erasing.REASON_CHARS,
        help_text="The audit log keeps it, with your name. Do not repeat what you erase.",
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )


@dataclass(frozen=True)
class Owner:
    """What a payload belongs to. `over`: none of it is still to be sent."""

    context: PayloadContext
    url: str
    words: str
    over: bool = True

    @property
    def of_call(self) -> bool:
        return self.context.call_uid is not None


@require_http_methods(["GET", "HEAD", "POST"])
def erase(request: WebRequest, digest: str) -> HttpResponse:
    access.require(request.user, erasing.PERMISSION)
    payload = Payload.objects.filter(digest=digest).first()
    owner = None if payload is None else _owner(request.user, payload)
    if payload is None or owner is None:
        raise Http404("This content does not exist, or you don't have access to it.")
    form, problem = EraseForm(request.POST if request.method == "POST" else None), ""
    if request.method == "POST" and form.is_valid():
        try:
            reason = form.cleaned_data["reason"]
            erased = erasing.erase(Actor.of(request), request.user, payload, reason, owner.context, over=owner.over)
        except ValidationError as refused:
            form.add_error("reason", refused)
        except StillNeeded as refused:
            problem = str(refused)
        else:
            words = "erased" if erased else "was already erased"
            messages.success(request, f"{PayloadKind(payload.kind).label} {words}. The audit log stays valid.")
            return redirect(owner.url)
    context = {
        "nav": "audit",
        "form": form,
        "problem": problem,
        "payload": payload,
        "kind": PayloadKind(payload.kind).label,
        "owner": owner,
    }
    return render(request, "privacy/erase.html", context, status=422 if form.errors or problem else 200)


def _owner(user: Any, payload: Payload) -> Owner | None:
    """None if the user may not see what it belongs to. Readers of the audit log may see all of them."""
    servers = visibility.on_visible_servers(user)
    everything = access.may(user, "view_auditevent")
    calls = Call.objects.filter(Q(arguments=payload) | Q(result=payload) | Q(late_result=payload), servers)
    call = (calls if everything else calls.filter(visibility.visible_q(user))).select_related("server").first()
    if call is not None:
        over = CallState(call.state).final or call.arguments_id != payload.pk
        return Owner(
            context_of(call), reverse("calls:detail", args=[call.uid]), f"call #{call.pk} to {call.target}", over
        )
    questions = Question.objects.filter(Q(question=payload) | Q(answer=payload), servers)
    own = access.seen_of_people(user, Q(personal=True), Q(session__identity__user_id=user.pk))
    question = (questions if everything else questions.filter(own)).select_related("server", "call").first()
    if question is not None:
        return _of_question(question)
    version = ResourceVersion.objects.filter(contents=payload, subscription__server__in=access.visible_servers(user))
    return _of_version(user, version.select_related("subscription__server", "subscription__identity").first())


def _of_question(question: Question) -> Owner:
    server = None if question.server is None else ServerRef.of(question.server)
    call_uid = None if question.call is None else question.call.uid
    over = question.state != QuestionState.OPEN and (
        question.answer_id is None or question.delivered_at is not None or bool(question.detail)
    )
    context = PayloadContext(server, question.identity_name, question.method, call_uid)
    return Owner(context, reverse("inbox:detail", args=[question.uid]), f"a request from {question.server_name}", over)


def _of_version(user: Any, version: ResourceVersion | None) -> Owner | None:
    if version is None:
        return None
    subscription = version.subscription
    shared = subscription.identity.user_id in (None, user.pk)
    if not shared and not access.may_see_personal_sessions(user):
        return None
    context = PayloadContext(ServerRef.of(subscription.server), subscription.identity.name, subscription.uri)
    url = reverse("subscriptions:detail", args=[subscription.uid])
    return Owner(context, url, f"version {version.number} of {subscription.uri}")
