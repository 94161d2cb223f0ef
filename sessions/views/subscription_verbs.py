"""A user's actions on a subscription: subscribe, end, delete, change settings, and test its webhook."""

from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from servers import access
from servers.audit.record import Actor
from servers.kit.words import format_count
from servers.models import Server
from servers.requests import WebRequest
from servers.single_use_forms import ALREADY_USED, use_form
from sessions.catalog import not_offered
from sessions.models import Subscription
from sessions.overview import server_page
from sessions.subscriptions import history as past
from sessions.subscriptions import subscribing
from sessions.subscriptions.forms import ReadingForm, SettingsForm, WebhookForm
from sessions.subscriptions.subscribing import AuditUnavailable
from sessions.views.subscriptions import subscription_context, subscription_for


def _see_other(subscription: Subscription, page: str = "detail") -> HttpResponseRedirect:
    response = redirect(f"subscriptions:{page}", subscription.uid)
    response.status_code = 303
    return response


# --- subscribing and ending -----------------------------------------------------------------------------------------
@require_POST
def subscribe(request: WebRequest, slug: str) -> HttpResponse:
    """With htmx, returns the button of the page in its new state; without JavaScript, redirects to the subscription's
    page."""
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "view")
    uri, title = request.POST.get("uri", ""), request.POST.get("title", "")
    try:
        found = subscribing.subscribe(Actor.of(request), request.user, server, uri, title=title)
    except (ValidationError, AuditUnavailable) as problem:
        return _not_subscribed(request, server, uri, problem)
    if request.htmx:
        return _button(request, server, found.uri, found)
    obstacle = past.obstacle(found, past.session_of(found))
    messages.success(request, f"Subscribed. {obstacle}".strip())
    return _see_other(found)


def _words(problem: Exception) -> str:
    return " ".join(problem.messages) if isinstance(problem, ValidationError) else str(problem)


def _not_subscribed(request: WebRequest, server: Server, uri: str, problem: Exception) -> HttpResponse:
    if request.htmx:
        return _button(request, server, uri, None, _words(problem))
    messages.error(request, _words(problem))
    return redirect("servers:resources", server.slug)


def _button(
    request: WebRequest, server: Server, uri: str, subscription: Subscription | None, problem: str = ""
) -> HttpResponse:
    context = {
        "server": server,
        "uri": uri,
        "title": subscription.title if subscription else request.POST.get("title", ""),
        "subscription": subscription,
        "no_subscriptions": not_offered.no_subscriptions(server_page.own_session(server)),
        "problem": problem,
        "permissions": access.permissions(request.user),
    }
    return render(request, "subscriptions/_subscribe.html", context, status=422 if problem else 200)


@require_POST
def end(request: WebRequest, uid: UUID) -> HttpResponse:
    subscription = subscription_for(request, uid)
    problem, followers = "", past.followers(subscription)
    try:
        subscribing.unsubscribe(Actor.of(request), request.user, subscription)
    except AuditUnavailable as refusal:
        problem = str(refusal)
    if request.htmx:
        row = Subscription.objects.filter(pk=subscription.pk).first()  # None if another person deleted it meanwhile
        return _button(request, subscription.server, subscription.uri, row, problem)
    if problem:
        messages.error(request, problem)
    else:
        cut_off = (
            f" {format_count(followers, 'agent')} that followed it will receive no more updates." if followers else ""
        )
        messages.success(request, f"Unsubscribed. The history is kept.{cut_off}")
    return _see_other(subscription)


@require_http_methods(["GET", "POST"])
def delete(request: WebRequest, uid: UUID) -> HttpResponse:
    """GET asks for confirmation; POST removes the subscription with its versions."""
    subscription = subscription_for(request, uid)
    access.require(request.user, "manage_subscription", subscription.server)
    if request.method == "POST":
        try:
            subscribing.delete(Actor.of(request), request.user, subscription)
        except AuditUnavailable as problem:
            messages.error(request, str(problem))
            return _see_other(subscription)
        messages.success(request, "Subscription and versions deleted.")
        return redirect("subscriptions:list")
    context = {"nav": "subscriptions", "subscription": subscription, "versions": subscription.versions.count()}
    return render(request, "subscriptions/delete.html", context)


# --- settings --------------------------------------------------------------------------------------------------------
@never_cache
@require_http_methods(["GET", "POST"])
def settings(request: WebRequest, uid: UUID) -> HttpResponse:
    """Two forms; `_section` says which one was sent. A new signing secret is shown only in this response."""
    subscription = subscription_for(request, uid)
    access.require(request.user, "manage_subscription", subscription.server)
    section = request.POST.get("_section", "") if request.method == "POST" else ""
    reading = ReadingForm(subscription, request.POST if section == "reading" else None)
    webhook = WebhookForm(subscription, request.POST if section == "webhook" else None)
    secret = ""
    sent: SettingsForm | None = {"reading": reading, "webhook": webhook}.get(section)
    if sent is not None and sent.is_valid():
        if section == "webhook" and not use_form(request):
            messages.info(request, ALREADY_USED)
            return _see_other(subscription, "settings")
        changed = _change(request, subscription, sent)
        if changed is not None and changed.secret is None:
            messages.success(request, "Saved." if changed.fields else "Nothing was changed.")
            return _see_other(subscription, "settings")
        if changed is not None and changed.secret is not None:
            secret = changed.secret.reveal()
            subscription.refresh_from_db()
            webhook = WebhookForm(subscription)  # the submitted form may show values that another person replaced
    context = subscription_context(request, subscription, "settings") | {
        "reading": reading,
        "webhook": webhook,
        "secret": secret,
        "deliveries": past.deliveries(subscription),
    }
    failed = sent is not None and bool(sent.errors)
    return render(request, "subscriptions/settings.html", context, status=422 if failed else 200)


def _change(request: WebRequest, subscription: Subscription, form: SettingsForm) -> subscribing.Changed | None:
    """None if it was refused; the form then shows the errors."""
    renew = "renew" in request.POST
    try:
        return subscribing.change(Actor.of(request), request.user, subscription, form.settings(), renew_secret=renew)
    except ValidationError as problem:
        form.refuse(problem)
    except AuditUnavailable as problem:
        form.add_error(None, str(problem))
    return None


@require_POST
def test(request: WebRequest, uid: UUID) -> HttpResponse:
    """Request a test message. Its result appears under Deliveries."""
    subscription = subscription_for(request, uid)
    try:
        subscribing.send_test(Actor.of(request), request.user, subscription)
    except (ValidationError, AuditUnavailable) as problem:
        messages.error(request, _words(problem))
    else:
        messages.success(request, "A worker sends the test message within seconds. See the outcome under Deliveries.")
    target = reverse("subscriptions:settings", args=[subscription.uid]) + "#deliveries"
    response = HttpResponseRedirect(target)
    response.status_code = 303
    return response
