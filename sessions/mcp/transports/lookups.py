"""Name lookups, in dedicated threads and shared by all callers that ask for the same name.

A lookup holds its thread until the system's resolver gives up, for 10 s or more if no name server answers, no matter
how soon its caller gives up. So names that hang must not take threads from anything else, and each takes only one.
"""

import asyncio
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

_Question = tuple[str, int, int]
_threads: Final = ThreadPoolExecutor(64, "lookup")
_lock: Final = threading.Lock()
#: the callers waiting for each unanswered lookup
_callers: Final[dict[_Question, list[Future[list[Any]]]]] = {}


async def look_up(host: str, port: int, family: int = socket.AF_UNSPEC) -> list[Any]:
    """The TCP addresses of a host, as `socket.getaddrinfo` returns them. Raises OSError and UnicodeError."""
    question, mine = (host, port, family), Future[list[Any]]()
    with _lock:
        callers = _callers.setdefault(question, [])
        callers.append(mine)
        if len(callers) == 1:
            try:
                _threads.submit(_answer, question)
            except RuntimeError as exc:  # the system allows no more threads, or the interpreter ends
                del _callers[question]
                raise OSError("No thread is free for the lookup.") from exc
    return await asyncio.wrap_future(mine)


def _answer(question: _Question) -> None:
    with _lock:
        if all(one.cancelled() for one in _callers.get(question, [])):
            _callers.pop(question, None)  # they gave up before the lookup started
            return
    host, port, family = question
    found: list[Any] = []
    problem: Exception | None = None
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except Exception as exc:  # passed on to the callers
        problem = exc
    with _lock:
        callers = _callers.pop(question, [])
    for one in callers:
        if not one.set_running_or_notify_cancel():
            continue
        if problem is not None:
            one.set_exception(problem)
        else:
            one.set_result(found)
