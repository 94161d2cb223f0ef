"""*Privacy*: what is masked and encrypted before it is stored, and the rules for it."""

from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from servers import access
from servers.audit import payload_privacy
from servers.audit.record import Actor
from servers.models import Payload, RedactionRule
from servers.privacy import changing
from servers.privacy.forms import PrivacySettingsForm, RuleForm, TryForm

_GONE = "This rule no longer exists."


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """POST changes the settings."""
    access.require(request.user, changing.PERMISSION)
    form = PrivacySettingsForm(request.POST) if request.method == "POST" else None
    try:
        if form is not None and form.is_valid() and _saved(request, form):
            return redirect("privacy:index")
    except changing.Conflict as conflict:
        return _page(request, problem=str(conflict))
    return _page(request, form=form)


def _saved(request: HttpRequest, form: PrivacySettingsForm) -> bool:
    try:
        seen = request.POST.get("seen", "")
        changed = changing.change_settings(Actor.of(request), request.user, form.cleaned_data, seen)
    except ValidationError as problem:
        form.add_error(None, problem)
        return False
    messages.success(
        request, "Saved. The change applies to everything stored from now on."
    ) if changed else messages.info(request, "Nothing changed.")
    return True


@require_POST
def try_out(request: HttpRequest) -> HttpResponse:
    access.require(request.user, changing.PERMISSION)
    form = TryForm(request.POST)
    tried = form.outcome(payload_privacy.stored()) if form.is_valid() else None
    return _page(request, trial=form, tried=tried)


def _page(
    request: HttpRequest,
    form: PrivacySettingsForm | None = None,
    trial: TryForm | None = None,
    tried: tuple[str, int] | None = None,
    problem: str = "",
) -> HttpResponse:
    row = changing.settings_now()
    context = {
        "nav": "privacy",
        "form": form or PrivacySettingsForm.of(row),
        "seen": changing.mark(row) if form is None else request.POST.get("seen", ""),
        "problem": problem,
        "sealing": row.seal_payloads,
        "sealed": Payload.objects.filter(sealed__isnull=False).exists(),
        "rules": RedactionRule.objects.select_related("server"),
        "trial": trial or TryForm(),
        "tried": tried,
    }
    failed = (form is not None and form.errors) or (trial is not None and trial.errors)
    return render(request, "privacy/index.html", context, status=422 if failed else 409 if problem else 200)


# --- rules -------------------------------------------------------------------------------------------------------------
@require_http_methods(["GET", "HEAD", "POST"])
def add_rule(request: HttpRequest) -> HttpResponse:
    access.require(request.user, changing.PERMISSION)
    form = (
        RuleForm(request.POST) if request.method == "POST" else RuleForm(initial={"path": request.GET.get("path", "")})
    )
    if request.method == "POST" and form.is_valid():
        try:
            row = changing.add_rule(Actor.of(request), request.user, form.values())
        except ValidationError as problem:
            form.add_error(None, problem)
        else:
            messages.success(
                request, f"Rule {row.path} added. All workers apply it within {payload_privacy.SECONDS:.0f} s."
            )
            return redirect("privacy:index")
    return _rule_page(request, form)


@require_http_methods(["GET", "HEAD", "POST"])
def rule(request: HttpRequest, uid: UUID) -> HttpResponse:
    access.require(request.user, changing.PERMISSION)
    row = _rule(uid)
    form = RuleForm(request.POST, row) if request.method == "POST" else RuleForm(row=row)
    if request.method == "POST" and form.is_valid():
        try:
            if not changing.change_rule(Actor.of(request), request.user, row, form.values()):
                raise Http404(_GONE)
        except ValidationError as problem:
            form.add_error(None, problem)
        else:
            messages.success(request, f"Rule {row.path} saved.")
            return redirect("privacy:index")
    return _rule_page(request, form, row)


def _rule_page(request: HttpRequest, form: RuleForm, row: RedactionRule | None = None) -> HttpResponse:
    context = {"nav": "privacy", "form": form, "rule": row}
    return render(request, "privacy/rule.html", context, status=422 if form.errors else 200)


@require_POST
def switch_rule(request: HttpRequest, uid: UUID) -> HttpResponse:
    access.require(request.user, changing.PERMISSION)
    row, enabled = _rule(uid), request.POST.get("enabled") == "1"
    changing.switch_rule(Actor.of(request), request.user, row, enabled=enabled)
    messages.success(request, f"Rule {row.path} {'enabled' if enabled else 'disabled'}.")
    return redirect("privacy:index")


@require_http_methods(["GET", "HEAD", "POST"])
def delete_rule(request: HttpRequest, uid: UUID) -> HttpResponse:
    """GET asks for confirmation; POST deletes."""
    access.require(request.user, changing.PERMISSION)
    row = _rule(uid)
    if request.method != "POST":
        return render(request, "privacy/delete_rule.html", {"nav": "privacy", "rule": row})
    changing.delete_rule(Actor.of(request), request.user, row)
    messages.success(request, f"Rule {row.path} deleted. Values that it has already masked stay masked.")
    return redirect("privacy:index")


def _rule(uid: UUID) -> RedactionRule:
    row = RedactionRule.objects.select_related("server").filter(uid=uid).first()
    if row is None:
        raise Http404(_GONE)
    return row
