"""Makes the message broker unreachable for this process and for every new connection."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from celery import current_app
from django.conf import settings
from kombu import pools


@contextmanager
def away() -> Iterator[None]:
    """No Valkey answers at the broker's address, even if other tests of this process left one running there."""
    socket = Path(settings.VALKEY_SOCKET)
    hidden = socket.with_suffix(".hidden")
    was_there = socket.exists()
    if was_there:
        socket.rename(hidden)
    _forget_connections()
    try:
        yield
    finally:
        if was_there:
            hidden.rename(socket)
        _forget_connections()


def _forget_connections() -> None:
    """Pooled connections would survive the renaming of the socket."""
    pools.reset()
    current_app._after_fork()
