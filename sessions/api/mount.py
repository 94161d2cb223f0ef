"""Where the HTTP API is mounted. The first request loads it: its library takes 13 MiB and 0.2 s, and many installations
never use it."""

import sys
from http import HTTPStatus
from importlib import import_module
from typing import Final

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import resolve
from django.views.decorators.csrf import csrf_exempt

URLCONF: Final = "sessions.api.urls"


@csrf_exempt
@login_not_required
async def api(request: HttpRequest, rest: str) -> HttpResponseBase:
    """An agent has no browser sign-in: its token is checked in each operation."""
    if URLCONF not in sys.modules:
        await sync_to_async(import_module)(URLCONF)
    found = resolve(request.path_info, URLCONF)
    view = found.func if iscoroutinefunction(found.func) else sync_to_async(found.func)
    response: HttpResponseBase = await view(request, *found.args, **found.kwargs)
    if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED:  # from the library, with its own text
        from sessions.api import problems  # noqa: PLC0415  # loaded by the first request, see above

        return problems.method_not_allowed(response.headers["Allow"])
    return response
