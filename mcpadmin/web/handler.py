"""Django's handler, with each page as a whole in one thread, and with room there for the frames of its templates.

Under ASGI, Django takes a new thread and a new database connection for each request, and changes between this thread and
the loop four times because one layer of its middleware is asynchronous. That costs 7 ms of CPU, as much as a small page.

Python 3.11 and later allocate memory for a thread's frames in chunks of 16 KiB, and free each one as soon as it is
empty. A loop at the end of a chunk that calls a function allocates and frees a chunk at every call. Which pages are
affected depends on how deep their templates are: *Add server* did so 1,125 times.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections, connections
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from mcpadmin import health

#: stack slots of 8 bytes: a frame of this size takes a chunk of 512 KiB, of which the frames above it have half
_SLOTS = 33_000

#: requests that run at once: a few wait for the database, or act on many servers
THREADS: Final = 32
#: where the asynchronous views are
ASYNCHRONOUS: Final = ("/api/", *health.PROBES)

T = TypeVar("T")
View = Callable[..., HttpResponseBase]


def call_with_room(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    return work(*args, **kwargs)


call_with_room.__code__ = call_with_room.__code__.replace(co_stacksize=_SLOTS)


class Handler(ASGIHandler):
    """`threads`: how many pages are made at once; more of them wait."""

    def __init__(self, threads: int = THREADS) -> None:
        self.load_middleware()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="page")
        self._asynchronous = ASGIHandler()

    def make_view_atomic(self, view: View) -> View:
        """Django's hook for wrapping each view."""
        atomic: Any = super().make_view_atomic(view)
        return atomic if iscoroutinefunction(atomic) else partial(call_with_room, atomic)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].startswith(ASYNCHRONOUS):
            await self._asynchronous(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        work = partial(copy_context().run, self._response, scope, body)
        response = await asyncio.get_running_loop().run_in_executor(self._threads, work)
        if response.streaming:
            await self._stream(response, receive, send)
        else:
            await self.send_response(response, send)

    def _response(self, scope: Any, body: Any) -> Any:
        """Unless it is a stream, nothing that it needed is open anymore."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=type(self), scope=scope)
        request, refused = self.create_request(scope, body)
        response: Any = refused if request is None else self.get_response(request)
        if request is None:
            body.close()
        response._handler_class = type(self)
        for connection in connections.all(initialized_only=True):
            if connection.vendor == "sqlite":  # PostgreSQL has a pool of its own
                connection.close_at = None  # for the next request of this thread, which would read the schema again
        if response.streaming:
            close_old_connections()  # what it reads while it is sent, it reads in another thread
        else:
            response.close()
        return response

    async def _stream(self, response: Any, receive: Any, send: Any) -> None:
        """Send it until its end, or until the client disconnects."""
        sending = asyncio.create_task(self.send_response(response, send))
        disconnected = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sending, disconnected), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, disconnected):
                task.cancel()
            await asyncio.gather(sending, disconnected, return_exceptions=True)
            await sync_to_async(response.close)()
