"""*References*: which references are granted to whom, and which servers are waiting for a grant."""

from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from servers import access
from servers.audit.record import Actor
from servers.credentials import reference_grants
from servers.credentials.forms.reference_grant import ReferenceGrantForm
from servers.models import ReferenceGrant


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """POST grants; `?name=` and `?to=` prefill the form."""
    access.require(request.user, reference_grants.PERMISSION)
    posted = request.method == "POST"
    initial = {name: request.GET[name] for name in ("name", "to") if name in request.GET}
    form = ReferenceGrantForm(request.POST if posted else None, initial=initial)
    if posted and form.is_valid() and _granted(request, form):
        return redirect("credentials:references")
    context = {
        "nav": "credentials",
        "form": form,
        "rows": reference_grants.rows(),
        "refused": reference_grants.refused_now(access.visible_servers(request.user)),
        "permissions": access.permissions(request.user),
    }
    return render(request, "references/index.html", context, status=422 if form.errors else 200)


def _granted(request: HttpRequest, form: ReferenceGrantForm) -> bool:
    try:
        row = reference_grants.grant(Actor.of(request), request.user, form.cleaned_data["name"], form.holder())
    except ValidationError as problem:
        form.add_error("name", problem.messages)
        return False
    messages.success(request, f"${{{row.name}}} is granted to {reference_grants.describe_holder(row)}.")
    return True


@require_http_methods(["GET", "HEAD", "POST"])
def revoke(request: HttpRequest, uid: UUID) -> HttpResponse:
    """GET asks for confirmation; POST removes the grant."""
    access.require(request.user, reference_grants.PERMISSION)
    found = ReferenceGrant.objects.select_related("user", "group", "server", "credential").filter(uid=uid).first()
    if found is None:
        raise Http404("This grant does not exist.")
    holder = reference_grants.describe_holder(found)
    if request.method != "POST":
        context = {"nav": "credentials", "written": f"${{{found.name}}}", "holder": holder}
        return render(request, "references/revoke.html", context)
    reference_grants.revoke(Actor.of(request), request.user, found)
    words = f"${{{found.name}}} is no longer granted to {holder}. Sessions that might use it reconnect."
    messages.success(request, words)
    return redirect("credentials:references")
