"""Django's handler, with room for the frames of a page.

Python 3.11 and later allocate memory for a thread's frames in chunks of 16 KiB, and free each one as soon as it is
empty. A loop at the end of a chunk that calls a function allocates and frees a chunk at every call. Which pages are
affected depends on how deep their templates are: *Add server* did so 1,125 times.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.core.handlers.asgi import ASGIHandler
from django.http.response import HttpResponseBase

#: stack slots of 8 bytes: a frame of this size takes a chunk of 512 KiB, of which the frames above it have half
_SLOTS = 33_000

T = TypeVar("T")
View = Callable[..., HttpResponseBase]


def call_with_room(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    return work(*args, **kwargs)


call_with_room.__code__ = call_with_room.__code__.replace(co_stacksize=_SLOTS)


class Handler(ASGIHandler):
    def make_view_atomic(self, view: View) -> View:
        """Django's hook for wrapping each view before it runs in a thread."""
        atomic: Any = super().make_view_atomic(view)
        return atomic if iscoroutinefunction(atomic) else partial(call_with_room, atomic)
