"""Views that show how a request is handled."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

seen: ContextVar[str] = ContextVar("seen", default="nothing")
both_arrived = threading.Barrier(2, timeout=20)
stream_ended = threading.Event()


@login_not_required
def count(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{threading.current_thread().name}: {Group.objects.count()} groups")


@login_not_required
def remember(request: HttpRequest) -> HttpResponse:
    before = seen.get()
    seen.set("the last request")
    return HttpResponse(before)


@login_not_required
def meet(request: HttpRequest) -> HttpResponse:
    both_arrived.wait()
    return HttpResponse("met")


@login_not_required
def endless(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(_endless())


async def _endless() -> AsyncIterator[bytes]:
    try:
        yield b"begun"
        await asyncio.Event().wait()
    finally:
        stream_ended.set()


urlpatterns = [path(view.__name__, view) for view in (count, remember, meet, endless)]
