"""Import and export of servers: paste or upload, preview what happens to each server, decide; and the export."""

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from servers import access, connect_limit
from servers.audit.record import Actor
from servers.crypto import SealError
from servers.models import ServerDraft
from servers.numbers import whole_number
from servers.registration import exporting
from servers.registration.importing import stored_preview
from servers.registration.importing.applying import Decision, apply, is_incomplete
from servers.registration.importing.document import ImportedDocument, read
from servers.registration.importing.forms import ExportForm, ImportForm, decisions
from servers.registration.importing.planning import Proposal, plan
from servers.registration.importing.preview import loses_secret, offer, summary


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def start(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "add_server")
    form = ImportForm(request.POST, request.FILES) if request.method == "POST" else ImportForm()
    if request.method == "POST" and form.is_valid():
        try:
            return redirect("servers:import_preview", stored_preview.hold(request.user, form.source).uid)
        except SealError as problem:
            form.add_error(None, str(problem))
    status = 422 if form.errors else 200
    return render(request, "import/start.html", {"nav": "servers", "form": form.as_asked()}, status=status)


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def preview(request: HttpRequest, uid: Any) -> HttpResponse:
    """What the import would do to each server; after *Import*, what it did."""
    access.require(request.user, "add_server")
    draft = access.import_for(request.user, uid)
    try:
        text = stored_preview.text_of(draft)
    except SealError as problem:
        messages.error(request, str(problem))
        return redirect("servers:import")
    try:
        document = read(text) if text else None
    except ValidationError as problem:  # it was readable before, so the machine is busy
        words = f"{' '.join(problem.messages)} The preview is kept for an hour: open {request.path} again."
        messages.error(request, words)
        return redirect("servers:import")
    proposals = plan(request.user, document) if document else []
    if request.method == "POST":
        return _applied(request, draft, document, proposals)
    return _page(request, draft, document, proposals)


def _page(
    request: HttpRequest,
    draft: ServerDraft,
    document: ImportedDocument | None,
    proposals: list[Proposal],
    decided: Mapping[int, Decision] | None = None,
    problem: str = "",
    status: int = 200,
) -> HttpResponse:
    """`decided`: the posted decisions, shown again with the `problem` that prevented the import."""
    outcomes = stored_preview.outcomes_of(draft)
    offers = [offer(proposal, outcomes, decided[proposal.index] if decided else None) for proposal in proposals]
    if decided and loses_secret(offers, decided):
        problem += " Secrets are never sent back to the page. Enter new secrets again."
    context = {
        "nav": "servers",
        "draft": draft,
        "document": document,
        "outcomes": outcomes,
        "offers": [one for one in offers if not one.done],
        "summary": summary(proposals),
        "decidable": any(len(one.choices) > 1 for one in offers),
        "problem": problem,
    }
    return render(request, "import/preview.html", context, status=status)


def _applied(
    request: HttpRequest, draft: ServerDraft, document: ImportedDocument | None, proposals: list[Proposal]
) -> HttpResponse:
    """Anything to correct or wait for is detected before the claim, and the page keeps what was entered."""
    version = whole_number(request.POST.get("version", ""))
    decided = decisions(request.POST, proposals)
    try:
        connect_limit.require(request.user, *connect_limit.IMPORTED)
    except connect_limit.TooOften as found:
        answer = _page(request, draft, document, proposals, decided, str(found.message), status=429)
        answer.headers["Retry-After"] = str(found.seconds)
        return answer
    if any(is_incomplete(proposal, decided[proposal.index]) for proposal in proposals):
        words = "The import has not started. Enter the values that are marked below, or skip their servers."
        return _page(request, draft, document, proposals, decided, words, status=422)
    back = redirect("servers:import_preview", draft.uid)
    if document is None or version is None or not stored_preview.claim(draft, version):
        messages.info(request, "This import has already been applied. Here is the result.")
        return back
    stored_preview.settle(draft, apply(Actor.of(request), request.user, document, proposals, decided))
    return back


@require_http_methods(["GET", "POST"])
def export(request: HttpRequest) -> HttpResponse:
    """Only a POST returns the file: opening the URL by accident writes no audit event."""
    access.require(request.user, "view_server")
    servers = access.visible_servers(request.user).filter(archived_at=None).select_related("owner")
    form = ExportForm(request.POST if request.method == "POST" else None, servers=servers)
    if request.method == "POST" and form.is_valid():
        kind = exporting.Form(form.cleaned_data["form"])
        chosen = list(form.cleaned_data["servers"])
        text = exporting.exported(Actor.of(request), chosen, kind, own=form.cleaned_data["own"])
        headers = {
            "Content-Disposition": f'attachment; filename="{exporting.file_name(kind)}"',
            "Cache-Control": "no-store",
        }
        return HttpResponse(text, content_type="application/json", headers=headers)
    context = {"nav": "servers", "form": form, "any_server": servers.exists()}
    return render(request, "import/export.html", context, status=422 if form.errors else 200)
