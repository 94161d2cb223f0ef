"""*Test connection* of a registration through a real worker, with names that resolve differently each time (R1, R4)."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth import get_user_model

from servers.audit.record import Actor
from servers.configuration import Registration
from servers.enums import DraftState, TransportKind
from servers.models import ServerDraft
from servers.registration.drafts import new_draft
from sessions.connections import commands
from tests.sessions.host.conftest import effects, start_worker, worker_of_file
from tests.sessions.host.harness import eventually

from .answers import CASES
from .names import Names
from .wall import PUBLIC, standing_wall

__all__ = ["effects", "start_worker", "worker_of_file"]
LITERALS = ["127.0.0.1", "169.254.169.254", "10.0.0.5", "2130706433", "[::1]", "internal.test", "localhost"]
KINDS = [TransportKind.STREAMABLE_HTTP, TransportKind.HTTP_SSE, TransportKind.WEBSOCKET]


def report_of(user: Any, kind: TransportKind, host: str) -> ServerDraft:
    scheme = "ws" if kind == TransportKind.WEBSOCKET else "http"
    registration = Registration(name="Draft", values=[], transport=kind, url=f"{scheme}://{host}:8080/mcp")
    draft = new_draft(Actor.of_user(user), user, registration)
    commands.test_draft(Actor.of_user(user), draft)
    over = ServerDraft.objects.filter(pk=draft.pk, state__in=[DraftState.SUCCEEDED, DraftState.FAILED])
    return eventually(over.first, 40, f"{host} {kind}")


@contextmanager
def wall_beside() -> Iterator[Callable[[], set[str]]]:
    """Run the wall in a separate thread; yields a function that returns who arrived."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def there(doing: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(doing, loop).result(60)

    standing = standing_wall()
    wall = there(standing.__aenter__())
    try:
        yield lambda: there(wall.reached())
    finally:
        there(standing.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_no_registration_reaches_anything_inside(start_worker: Any, names: Names, settings: Any) -> None:
    settings.TRIES_PER_MINUTE = 0  # otherwise one person would have to wait
    names.zone |= {f"{case}.here.test": answers for case, answers in CASES.items()}
    start_worker(MCPADMIN_ALLOW_LOOPBACK="false")
    user = get_user_model().objects.create(username="ada", is_superuser=True)
    with wall_beside() as reached:
        for kind in KINDS:
            for host in [*LITERALS, *(f"{case}.here.test" for case in CASES)]:
                done = report_of(user, kind, host)
                assert done.state == DraftState.FAILED, host
                assert host not in LITERALS or done.fault in ("address_refused", "dns_failed", "invalid_request")
        assert reached() == {f"{PUBLIC} 8080"}
