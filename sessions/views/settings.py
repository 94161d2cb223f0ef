"""*Settings* of the instance: every value, where it comes from and what it does."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.audit.record import Actor
from servers.kit.filters import ignored
from servers.models import BrowserReport
from servers.requests import WebRequest
from sessions.configuration import changing, reading
from sessions.configuration.changing import Refused

PERMISSION = "administer"


@require_safe
def index(request: WebRequest) -> HttpResponse:
    access.require(request.user, PERMISSION)
    return _page(request)


def _page(request: WebRequest, refused: Refused | None = None) -> HttpResponse:
    words = request.GET.get("text", "").strip()[:100]
    asked = request.GET.get("source", "")
    source = asked if asked in reading.Source else ""
    found = reading.sections(words, source, refused)
    context = {
        "nav": "settings",
        "words": words,
        "source": source,
        "sources": reading.Source.choices,
        "ignored_filters": ignored(request.GET, {"source": source}),
        "sections": found,
        "reports": BrowserReport.objects.count(),
    }
    return render(request, "settings/index.html", context, status=200 if refused is None else 422)


@require_POST
def change(request: WebRequest, key: str) -> HttpResponse:
    access.require(request.user, PERMISSION)
    try:
        changed = changing.change(Actor.of(request), request.user, key, request.POST)
    except Refused as refused:
        return _page(request, refused)
    messages.success(request, "Saved.") if changed else messages.info(request, "Nothing changed.")
    query = request.GET.urlencode()
    return redirect(f"{reverse('settings:index')}{'?' if query else ''}{query}#setting-{key}")
