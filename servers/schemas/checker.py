"""Whether a value satisfies an untrusted schema, within a bounded time, without ever fetching anything.

What is not plainly valid is checked in one long-lived child of this process, which is killed when a check takes longer
than its budget: a regular expression or a reference cannot be trusted to terminate. One thread per process talks to it,
started by the first check; it also owns the child, because the kernel's parent-death signal follows the thread that
created it.
"""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as WaitedTooLong
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from servers.json.text import Json
from servers.schemas.bounds import MAX_SCHEMA_BYTES, too_large
from servers.schemas.checker_process import (
    START_SECONDS,
    TRANSFER_SECONDS,
    CheckerEnded,
    CheckerProcess,
    CheckerTimeout,
)
from servers.schemas.phrases import Violation, phrased
from servers.schemas.plain import surely_valid
from servers.schemas.shapes import Schema

CHECK_SECONDS = 0.25
MAX_WAITING = 64
"""Checks that may wait for the child; one more is answered "unable" at once."""


@dataclass(frozen=True)
class Validity:
    """`unable` has a `reason`: nothing is known about the value, and a call needs a person's confirmation."""

    state: Literal["valid", "invalid", "unable"]
    violations: tuple[Violation, ...] = ()
    reason: str = ""

    @property
    def unable(self) -> bool:
        return self.state == "unable"

    @property
    def errors(self) -> dict[str, list[str]]:
        """The messages by JSON pointer, as compile_form expects them."""
        found: dict[str, list[str]] = {}
        for violation in self.violations:
            found.setdefault(violation.pointer, []).append(violation.message)
        return found


VALID = Validity("valid")
_BUSY = f"The checker is too busy: at most {MAX_WAITING} checks can wait, which is a fixed limit. Try again."
_thread = threading.local()


class WouldBlock(Exception):
    """The check needs the child, but this thread may not wait for it."""


@contextmanager
def without_waiting() -> Iterator[None]:
    """Within this context, `check` in this thread raises WouldBlock instead of asking the child."""
    _thread.may_not_wait = True
    try:
        yield
    finally:
        _thread.may_not_wait = False


def unable(reason: str) -> Validity:
    return Validity("unable", reason=reason)


class Checker:
    """Thread-safe. `seconds` is the budget of one check once the child has read it."""

    def __init__(self, seconds: float = CHECK_SECONDS) -> None:
        self._seconds = seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="schema-checker")
        self._places = threading.BoundedSemaphore(MAX_WAITING)
        self._child: CheckerProcess | None = None

    def check(self, schema: Schema, value: Json) -> Validity:
        if surely_valid(schema, value):
            return VALID
        if getattr(_thread, "may_not_wait", False):
            raise WouldBlock
        future = self._submit(schema, value)
        try:
            return future.result(self._patience)
        except WaitedTooLong:
            return unable(_BUSY)

    async def acheck(self, schema: Schema, value: Json) -> Validity:
        if surely_valid(schema, value):
            return VALID
        future = self._submit(schema, value)
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            return unable(_BUSY)

    def close(self) -> None:
        """End the child; the checker cannot be used afterwards."""
        self._thread.submit(self._drop)
        self._thread.shutdown(wait=True)

    @property
    def pid(self) -> int | None:
        """The child's PID; None before the first check."""
        child = self._child
        return child.pid if child is not None else None

    @property
    def _patience(self) -> float:
        return START_SECONDS + 2 * TRANSFER_SECONDS

    def _submit(self, schema: Schema, value: Json) -> "Future[Validity]":
        if not self._places.acquire(blocking=False):
            refused: Future[Validity] = Future()
            refused.set_result(unable(_BUSY))
            return refused
        future = self._thread.submit(self._check, schema, value)
        future.add_done_callback(lambda _: self._places.release())
        return future

    def _check(self, schema: Schema, value: Json) -> Validity:
        if not isinstance(schema, dict | bool):
            return unable("The schema is not valid: it must be an object.")
        refusal = too_large(schema, value)
        if refusal:
            return unable(refusal)
        text = json.dumps(schema)
        if len(text) > MAX_SCHEMA_BYTES:
            return unable(f"The schema is larger than {MAX_SCHEMA_BYTES >> 20} MiB, which is a fixed limit.")
        return self._asked(text, value)

    def _asked(self, schema_text: str, value: Json, again: bool = True) -> Validity:
        fresh = self._child is None
        try:
            self._child = self._child or CheckerProcess()
            return _verdict(self._child.ask(schema_text, value, self._seconds))
        except CheckerTimeout:
            self._drop()
            return unable(f"The check took longer than {self._seconds:g} s, which is a fixed limit.")
        except (CheckerEnded, OSError):
            self._drop()
            # A child that was killed from outside between two checks says nothing about this one: retry once with a new
            # one.
            return self._asked(schema_text, value, again=False) if again and not fresh else unable("The check failed.")

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()


def _verdict(answer: dict[str, Any]) -> Validity:
    if "unable" in answer:
        return unable(str(answer["unable"]))
    violations = tuple(phrased(answer["violations"]))
    return Validity("invalid", violations) if violations else VALID


_lock = threading.Lock()
_shared: Checker | None = None


def shared() -> Checker:
    """The checker of this process."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = Checker()
        return _shared


def check(schema: Schema, value: Json) -> Validity:
    return shared().check(schema, value)


def _forget_after_fork() -> None:
    """A forked worker does not inherit the thread and must not read from the parent's child."""
    global _shared, _lock
    _shared, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)
