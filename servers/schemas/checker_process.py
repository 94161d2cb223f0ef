"""One child process that checks values, with deadlines. Used by one thread at a time."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema_rs

_CHILD = Path(__file__).with_name("checker_child.py")
_LIBRARY = Path(jsonschema_rs.__file__).parent.parent
START_SECONDS = 10.0
TRANSFER_SECONDS = 5.0
_CHUNK = 1 << 16
MAX_ANSWER_BYTES = 4 << 20


class CheckerEnded(Exception):
    """The child ended, or its answer was invalid."""


class CheckerTimeout(Exception):
    """A deadline passed."""


class CheckerProcess:
    """Starts the process; `ask` may be called until `close`, but not again after it has raised."""

    def __init__(self) -> None:
        # Only the child has the far ends open, so that its death closes the pipe.
        child_in, self._in = os.pipe()
        self._out, child_out = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 -- fixed command line, no shell, nothing of a request in it
                _command(),
                stdin=child_in,
                stdout=child_out,
                stderr=subprocess.DEVNULL,
                env={"LC_ALL": "C.UTF-8"},
                cwd="/",
            )
        except OSError:
            self._close_ours()
            raise
        finally:
            os.close(child_in)
            os.close(child_out)
        os.set_blocking(self._in, False)
        self._buffer = bytearray()
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, schema_text: str, value: Any, seconds: float) -> dict[str, Any]:
        """`seconds` is the time for the check itself, starting when the child has read the request."""
        if not self._ready:
            self._line(time.monotonic() + START_SECONDS)
            self._ready = True
        deadline = time.monotonic() + TRANSFER_SECONDS
        self._send(json.dumps({"schema": schema_text, "value": value}).encode() + b"\n", deadline)
        self._line(deadline)
        return self._line(time.monotonic() + seconds)

    def close(self) -> None:
        self._process.kill()
        self._close_ours()
        self._process.wait()

    def _close_ours(self) -> None:
        os.close(self._in)
        os.close(self._out)

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait([], [self._in], deadline)
            try:
                view = view[os.write(self._in, view[:_CHUNK]) :]
            except BlockingIOError:
                continue
            except OSError as exc:
                raise CheckerEnded("the pipe to the checker broke") from exc

    def _line(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            self._wait([self._out], [], deadline)
            chunk = os.read(self._out, _CHUNK)
            if not chunk or len(self._buffer) > MAX_ANSWER_BYTES:
                raise CheckerEnded("the checker ended without an answer")
            self._buffer += chunk
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _wait(self, reading: list[int], writing: list[int], deadline: float) -> None:
        poller = select.poll()  # descriptors may exceed the maximum of select()
        for fd in reading:
            poller.register(fd, select.POLLIN)
        for fd in writing:
            poller.register(fd, select.POLLOUT)
        if not poller.poll(max(0, deadline - time.monotonic()) * 1000):
            raise CheckerTimeout


def _command() -> list[str]:
    """With setpriv, the child dies with the thread that started it; it always exits at the end of its input."""
    python = [sys.executable, "-I", "-B", str(_CHILD), str(_LIBRARY)]
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *python] if setpriv else python
