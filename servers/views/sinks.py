"""Sinks: a receiver of forwarded audit events, its state, and what an administrator can do with it."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from servers import access
from servers.audit.record import Actor
from servers.enums import SinkKind
from servers.exporting import board as exporting
from servers.forwarding import board, sinks
from servers.forwarding.forms import RewindForm, SinkForm
from servers.models import Sink
from servers.secret import Secret
from servers.single_use_forms import ALREADY_USED, use_form


def _sink(request: HttpRequest, uid: UUID) -> Sink:
    access.require(request.user, "administer")
    found = Sink.objects.filter(uid=uid).first()
    if found is None:
        raise Http404("This sink does not exist.")
    return found


@never_cache
@sensitive_post_parameters("value", "private_key")
@require_http_methods(["GET", "HEAD", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """`?kind=` selects the fields. The signing secret is shown in this response and never again."""
    access.require(request.user, "administer")
    wanted = request.GET.get("kind", "")
    kind = SinkKind(wanted) if wanted in SinkKind.values else SinkKind.OTLP
    form = SinkForm(kind, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        beginning = form.cleaned_data["start"] == "beginning"
        try:
            sink, signing = sinks.create(request.user, Actor.of(request), form.settings(), from_beginning=beginning)
        except (sinks.NameTaken, sinks.SecretNeeded) as problem:
            _refuse(form, problem)
        else:
            if signing:
                return _shown(request, sink, signing=signing)
            messages.success(request, f"{sink.name} added.")
            return redirect("exports:sink", sink.uid)
    context = {"nav": "exports", "form": form, "kind": kind, "kinds": list(SinkKind)}
    return render(request, "exports/add_sink.html", context, status=422 if form.errors else 200)


@never_cache
@sensitive_post_parameters("value", "private_key")
@require_http_methods(["GET", "HEAD", "POST"])
def detail(request: HttpRequest, uid: UUID) -> HttpResponse:
    sink = _sink(request, uid)
    if request.method != "POST":
        return _shown(request, sink)
    form = SinkForm(SinkKind(sink.kind), request.POST, sink=sink)
    if form.is_valid():
        try:
            sinks.change(request.user, Actor.of(request), sink, form.settings())
        except (sinks.NameTaken, sinks.SecretNeeded) as problem:
            _refuse(form, problem)
        else:
            messages.success(request, "Saved.")
            return redirect("exports:sink", uid)
    return _shown(request, Sink.objects.get(uid=uid), form=form)


@never_cache
@require_POST
def renew_signing(request: HttpRequest, uid: UUID) -> HttpResponse:
    sink = _sink(request, uid)
    if not use_form(request):
        messages.info(request, ALREADY_USED)
        return redirect("exports:sink", uid)
    return _shown(request, sink, signing=sinks.renew_signing(request.user, Actor.of(request), sink))


@require_POST
def test(request: HttpRequest, uid: UUID) -> HttpResponse:
    try:
        sinks.request_test(request.user, Actor.of(request), _sink(request, uid))
    except ValidationError as problem:
        messages.error(request, " ".join(problem.messages))
    return redirect("exports:sink", uid)


@require_POST
def pause(request: HttpRequest, uid: UUID) -> HttpResponse:
    sinks.pause(request.user, Actor.of(request), _sink(request, uid))
    return redirect("exports:sink", uid)


@require_POST
def resume(request: HttpRequest, uid: UUID) -> HttpResponse:
    """Resume the sink. If it is not paused, retry now."""
    sinks.resume(request.user, Actor.of(request), _sink(request, uid))
    return redirect("exports:sink", uid)


@require_POST
def rewind(request: HttpRequest, uid: UUID) -> HttpResponse:
    sink = _sink(request, uid)
    form = RewindForm(request.POST)
    if not form.is_valid():
        return _shown(request, sink, rewinding=form)
    first = sinks.rewind(request.user, Actor.of(request), sink, form.cleaned_data["first"] - 1)
    messages.success(request, f"Forwarding from event {first:,}.")
    return redirect("exports:sink", uid)


@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, uid: UUID) -> HttpResponse:
    sink = _sink(request, uid)
    if request.method == "POST":
        sinks.delete(request.user, Actor.of(request), sink)
        messages.success(request, f"{sink.name} deleted.")
        return redirect("exports:list")
    return render(request, "exports/delete_sink.html", {"nav": "exports", "sink": sink, "row": board.row_of(sink)})


def _shown(
    request: HttpRequest,
    sink: Sink,
    *,
    form: SinkForm | None = None,
    rewinding: RewindForm | None = None,
    signing: Secret | None = None,
) -> HttpResponse:
    context: dict[str, Any] = {
        "nav": "exports",
        "mark": exporting.mark(),
        "sink": sink,
        "row": board.row_of(sink),
        "form": form or SinkForm(SinkKind(sink.kind), sink=sink),
        "rewinding": rewinding or RewindForm(initial={"first": sink.cursor + 1}),
        "signing": signing.reveal() if signing else "",
    }
    failed = bool((form and form.errors) or (rewinding and rewinding.errors))
    return render(request, "exports/sink.html", context, status=422 if failed else 200)


def _refuse(form: SinkForm, problem: Exception) -> None:
    if isinstance(problem, sinks.SecretNeeded):
        form.refuse(problem)
    else:
        form.add_error("name", "This name is taken.")
