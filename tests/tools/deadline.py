"""No test waits for ever: at its deadline it fails at the current line, with the stacks of all threads on stderr. A run
that receives SIGTERM or SIGHUP leaves no processes behind.
"""

import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

SECONDS = 300
SLOW_SECONDS = 600
#: with the marker `long`: it walks all pages, or a whole matrix, beside three other phases
LONG_SECONDS = 3_600


def pytest_configure() -> None:
    """On SIGTERM or SIGHUP (`timeout`, a closing terminal), stop what the fixtures started, as with Ctrl-C."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)


def _deadline_of(item: pytest.Item) -> int:
    if (own := item.get_closest_marker("deadline")) is not None:
        return int(own.args[0])
    if item.get_closest_marker("long"):
        return LONG_SECONDS
    slow = item.get_closest_marker("slow") or item.get_closest_marker("up")
    return SLOW_SECONDS if slow else SECONDS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        return (yield)
    seconds = _deadline_of(item)

    def fail(*_: object) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__)
        pytest.fail(f"the test did not end within {seconds} s")

    previous = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise TimeoutError when the body takes longer. Main thread only. The deadline of the test keeps running."""

    def end(*_: object) -> None:
        raise TimeoutError(f"not done within {seconds} s")

    begin, previous = time.monotonic(), signal.signal(signal.SIGALRM, end)
    left = signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
        if left:
            signal.alarm(max(1, left - int(time.monotonic() - begin)))
