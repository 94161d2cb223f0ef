"""One running process of a part: its output, its word that it is ready, its end."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import IO, Any

from mcpadmin.up import process, ready
from mcpadmin.up.output import Lines, Output
from mcpadmin.up.parts import ROOT, Part

READ_BYTES = 65_536


class Child:
    def __init__(self, part: Part, env: Mapping[str, str], output: Output) -> None:
        self._loop = asyncio.get_running_loop()
        self._part, self._output = part, output
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self.announced: asyncio.Future[None] = self._loop.create_future()
        self.started = monotonic()
        self._popen = self._spawn(env)
        self.pid = self._popen.pid
        self._out, self._err = Lines(), Lines()
        self._pipes = {self._adopt(self._popen.stdout): self._out, self._adopt(self._popen.stderr): self._err}

    def _spawn(self, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        if self._part.probe is not None:
            return process.spawn(self._part.argv, env, self._part.pass_fds, ROOT)
        told, tell = os.pipe()
        self._loop.add_reader(told, self._hear, told)
        try:
            return process.spawn(
                self._part.argv, {**env, ready.VARIABLE: str(tell)}, (*self._part.pass_fds, tell), ROOT
            )
        finally:
            os.close(tell)

    def _adopt(self, pipe: IO[bytes] | None) -> int:
        descriptor = os.dup(pipe.fileno()) if pipe else -1  # always a pipe: `spawn` asks for both
        if pipe:
            pipe.close()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, partial(self._read, descriptor))
        return descriptor

    def _hear(self, descriptor: int) -> None:
        said = os.read(descriptor, 16)
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        if said and not self.announced.done():
            self.announced.set_result(None)

    def _read(self, descriptor: int) -> bool:
        """False when nothing more can be read now."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        lines = self._pipes[descriptor]
        for line in lines.feed(data) if data else lines.finish():
            self._output.say(line, self._part.name)
        if not data:
            self._close(descriptor)
        return bool(data)

    def _close(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        del self._pipes[descriptor]
        os.close(descriptor)

    async def ready(self) -> None:
        await (self._part.probe() if self._part.probe else asyncio.shield(self.announced))

    def ended(self, status: int) -> None:
        """Called by whoever reaped the pid. Takes what is left in the pipes; a grandchild may hold them open."""
        self._popen.returncode = status
        for descriptor in list(self._pipes):
            while descriptor in self._pipes and self._read(descriptor):
                pass
            if descriptor in self._pipes:
                self._close(descriptor)
        if not self.exited.done():
            self.exited.set_result(status)

    def last_lines(self) -> list[str]:
        return list(self._err.last or self._out.last)

    async def stop(self, grace: float, hurry: asyncio.Event) -> None:
        """SIGTERM, then after `grace` seconds (or at once when hurried) SIGKILL for its whole group."""
        if self.exited.done():
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        haste = asyncio.create_task(hurry.wait())
        ends: list[asyncio.Future[Any]] = [self.exited, haste]
        await asyncio.wait(ends, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        haste.cancel()
        if not self.exited.done():
            why = "at once, as asked" if hurry.is_set() else f"after {grace:.1f} s without its end"
            self._output.say(f"{self._part.name} killed {why}")
        process.kill_group(self.pid, signal.SIGKILL)
        await asyncio.wait({self.exited}, timeout=1)
