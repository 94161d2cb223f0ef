"""Releasing an installation that was detected as a copy."""

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from servers import access, instance
from servers.audit.record import Actor, record_many


@require_POST
def release(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "administer")
    with transaction.atomic():
        events = instance.release(Actor.of(request))
        record_many(events)
    if events:
        messages.success(request, "Released. Workers open the sessions within a few seconds.")
    else:
        messages.info(request, "This instance was already released.")
    return redirect("overview")
