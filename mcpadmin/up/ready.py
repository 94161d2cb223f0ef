"""The part's side of its pipes with `up`: it waits for the preparation, it announces that it serves, and web processes
read reports from `up`.

All of them are inherited pipes, so nothing has to poll or parse logs.
"""

import asyncio
import os
import select
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

VARIABLE = "MCPADMIN_READY_FD"
#: the read end of a pipe that reports ended workers to the web processes; only one of them reads each line
REPORTS_VARIABLE = "MCPADMIN_REPORTS_FD"
REPORTS_BYTES = 65_536
#: the read end of a pipe that holds a byte once the installation is prepared; it is never read, so that every part
#: finds it, including restarted ones
PREPARED_VARIABLE = "MCPADMIN_PREPARED_FD"
ASK_AGAIN_SECONDS = 0.1
Application = Callable[..., Awaitable[None]]


def close_pipes_to_children() -> bool:
    """Keep the pipes from our own children (stdio servers). Returns False when `up` did not start this process."""
    for variable in (VARIABLE, REPORTS_VARIABLE, PREPARED_VARIABLE):
        if descriptor := os.environ.get(variable):
            os.set_inheritable(int(descriptor), False)
    return VARIABLE in os.environ


def announce(words: str = "ready", **_signal: object) -> bool:
    """Also the receiver of Celery's worker_ready. Returns False without a pipe to announce on."""
    descriptor = os.environ.pop(VARIABLE, None)
    if descriptor is None:
        return False
    with os.fdopen(int(descriptor), "w") as pipe:
        pipe.write(words)
    return True


def wait_until_prepared() -> None:
    """`up` starts its parts while `manage.py prepare` still checks, migrates and collects: loading the code takes most of
    a start. A part waits here before it uses the database, static files or Redis. Ends the process if `up` is gone."""
    descriptor = os.environ.pop(PREPARED_VARIABLE, None)
    if descriptor is None:
        return
    pipe = select.poll()
    pipe.register(int(descriptor), select.POLLIN)
    if not any(event & select.POLLIN for _, event in pipe.poll()):
        sys.exit("up ended before the installation was prepared")
    os.close(int(descriptor))


def start_django() -> None:
    """If a variable cannot be read, the preparation says so, and `up` ends: the other parts wait for that silently."""
    import django  # noqa: PLC0415  # `up` loads this module too, and no Django
    from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415  # as above

    try:
        django.setup()
    except ImproperlyConfigured:
        wait_until_prepared()
        raise


def announce_when_serving(application: Application) -> None:
    """For a web process. Several may share the listening socket, so a request from outside does not prove that this one
    serves. It requests a page from itself first, which also loads what the first visitor would wait for."""
    if VARIABLE not in os.environ:
        return
    from twisted.internet import reactor  # noqa: PLC0415  # daphne has chosen it by now

    def running() -> None:
        global _asking
        _asking = asyncio.get_event_loop().create_task(_announce_once_served(application))

    reactor.callWhenRunning(running)


_asking: "asyncio.Task[None] | None" = None


async def _announce_once_served(application: Application) -> None:
    while await _status(application) != 200:  # noqa: ASYNC110 - no event says when a failing page works
        await asyncio.sleep(ASK_AGAIN_SECONDS)
    announce()


async def _status(application: Application) -> int:
    scope = {
        **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": ""},
        **{"method": "GET", "path": "/healthz", "raw_path": b"/healthz", "query_string": b""},
        **{"headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 0), "server": ("127.0.0.1", 0)},
    }
    events: list[dict[str, Any]] = [{"type": "http.request", "body": b"", "more_body": False}]
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return events.pop() if events else await asyncio.Future()

    async def send(event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            statuses.append(event["status"])

    await application(scope, receive, send)
    return statuses[0] if statuses else 0


def on_ended_worker(record: Callable[[str, int], None]) -> None:
    """In a thread, call `record` with the node and pid of each worker that `up` reaped."""
    descriptor = os.environ.pop(REPORTS_VARIABLE, None)
    if descriptor is not None:
        threading.Thread(target=_read_reports, args=(int(descriptor), record), name="up-reports", daemon=True).start()


def _read_reports(descriptor: int, record: Callable[[str, int], None]) -> None:
    while text := os.read(descriptor, REPORTS_BYTES):  # one read returns whole lines: `up` writes each in one piece
        for line in text.decode().splitlines():
            node, _, pid = line.rpartition(" ")
            record(node, int(pid))
