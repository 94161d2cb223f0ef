"""*Settings* of the instance: every value, where it comes from and what it does."""

from django.contrib import messages
from django.core.exceptions import ValidationError
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

RIGHT = "administer"


@require_safe
def index(request: WebRequest) -> HttpResponse:
    access.require(request.user, RIGHT)
    words = request.GET.get("text", "").strip()[:100]
    asked = request.GET.get("source", "")
    source = asked if asked in reading.Source else ""
    found = reading.sections(words, source)
    context = {
        "nav": "settings",
        "words": words,
        "source": source,
        "sources": reading.Source.choices,
        "ignored_filters": ignored(request.GET, {"source": source}),
        "sections": found,
        "reports": BrowserReport.objects.count(),
    }
    return render(request, "settings/index.html", context)


@require_POST
def change(request: WebRequest, key: str) -> HttpResponse:
    access.require(request.user, RIGHT)
    try:
        changed = changing.change(Actor.of(request), request.user, key, request.POST)
    except ValidationError as problem:
        messages.error(request, " ".join(problem.messages))
    else:
        messages.success(request, "Saved.") if changed else messages.info(request, "Nothing changed.")
    query = request.GET.urlencode()
    return redirect(f"{reverse('settings:index')}{'?' if query else ''}{query}#setting-{key}")
