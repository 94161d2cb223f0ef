"""Servers that are children not of this process but of a keeper (see runner.run_keeper). The keeper reports their end, and
receives commands, over a socket."""

import asyncio
import errno
import os
import signal
import socket
import struct
import subprocess
import threading
from asyncio.base_subprocess import BaseSubprocessTransport
from collections.abc import Callable, Sequence
from typing import Any, Final

from . import runner
from .confinement import PYTHON, threads

_NUMBER: Final = struct.Struct("i")


class Pipes:
    """The three pipes of a server. `theirs`: the ends for the server; the other ends are for the transport."""

    def __init__(self) -> None:
        made: list[int] = []
        try:
            for _ in range(3):
                made += os.pipe()
        except OSError:  # no descriptor is free: those that were go back
            for descriptor in made:
                os.close(descriptor)
            raise
        inside, self.stdin, self.stdout, out, self.stderr, errors = made
        self.theirs = (inside, out, errors)

    def close_theirs(self) -> None:
        for descriptor in self.theirs:
            os.close(descriptor)

    def close_ours(self) -> None:
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.close(descriptor)


class _Process:
    """The interface of a child process that asyncio's transport expects."""

    def __init__(self, pid: int, pipes: Pipes, keeper_socket: socket.socket) -> None:
        self.pid, self._keeper_socket = pid, keeper_socket
        self.stdin = open(pipes.stdin, "wb", 0)  # noqa: SIM115  # the transport closes it, like the next two
        self.stdout = open(pipes.stdout, "rb", 0)  # noqa: SIM115  # as above
        self.stderr = open(pipes.stderr, "rb", 0)  # noqa: SIM115  # as above
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        order = runner.TERMINATE if number == signal.SIGTERM else runner.END
        try:
            self._keeper_socket.send(order)
        except OSError:
            pass  # the keeper has ended, or its socket is full of commands

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class KeeperTransport(BaseSubprocessTransport):
    """`on_end` is called when no process of the server is left."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.SubprocessProtocol,
        process: _Process,
        keeper_socket: socket.socket,
        waiter: asyncio.Future[None],
        on_end: Callable[[], object],
    ) -> None:
        self._keeper_socket, self._on_end = keeper_socket, on_end
        pipe = asyncio.subprocess.PIPE
        super().__init__(loop, protocol, [], False, pipe, pipe, pipe, 0, waiter=waiter, held=process)
        loop.add_reader(keeper_socket, self._on_keeper_message)

    def _start(self, *_: Any, **given: Any) -> None:
        self._proc = given["held"]

    def _on_keeper_message(self) -> None:
        try:
            report = self._keeper_socket.recv(_NUMBER.size)
        except BlockingIOError:
            return
        except ConnectionError:
            report = b""
        self._loop.remove_reader(self._keeper_socket)
        self._keeper_socket.close()
        self._on_end()
        # Without a report, the keeper was killed.
        self._process_exited(_NUMBER.unpack(report)[0] if len(report) == _NUMBER.size else -signal.SIGKILL)


async def attached(
    factory: Callable[[], asyncio.SubprocessProtocol],
    keeper_socket: socket.socket,
    pipes: Pipes,
    *,
    pid: int = 0,
    on_end: Callable[[], object] = lambda: None,
) -> KeeperTransport:
    """The transport of a server whose keeper already has its descriptors. The transport owns the socket and the pipes
    from here on. `pid`: the keeper's, in our PID namespace, if the keeper cannot know it. ConnectionError if the keeper
    has ended."""
    loop = asyncio.get_running_loop()
    try:
        keeper_socket.setblocking(False)
        seen = await loop.sock_recv(keeper_socket, _NUMBER.size)
        if len(seen) != _NUMBER.size:
            raise ConnectionResetError(errno.ECONNRESET, "the process that supervises it has ended")
    except BaseException:  # also when cancelled: a keeper ends when its socket is closed
        keeper_socket.close()
        pipes.close_ours()
        on_end()
        raise
    waiter: asyncio.Future[None] = loop.create_future()
    process = _Process(pid or _NUMBER.unpack(seen)[0], pipes, keeper_socket)
    transport = KeeperTransport(loop, factory(), process, keeper_socket, waiter, on_end)
    try:
        await waiter
    except BaseException:  # also when cancelled
        transport.close()
        raise
    return transport


class ZygoteProcess:
    """The process that forks the keepers of one worker. It is restarted if it has ended."""

    def __init__(self) -> None:
        self._orders: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._one = threading.Lock()

    def fork(self, descriptors: Sequence[int]) -> None:
        """Fork a keeper with these descriptors. Call it in a thread. Raises OSError."""
        with self._one:
            for _ in range(2):
                if self._orders is None:
                    self._orders, self._process = self._started()
                try:
                    socket.send_fds(self._orders, [b"k"], descriptors)
                except ConnectionError:
                    self.close()
                else:
                    return
        raise ChildProcessError(errno.ECHILD, "the process that starts servers ended at once")

    def close(self) -> None:
        """The keepers stay until their servers end."""
        if self._orders is not None and self._process is not None:
            self._orders.close()
            self._process.wait()
            self._orders = self._process = None

    def _started(self) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number, nothing = theirs.fileno(), subprocess.DEVNULL
        with theirs:
            process = subprocess.Popen(  # noqa: S603  # our own interpreter
                (*PYTHON, "zygote", str(number)),
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                cwd="/",
                env={},
                start_new_session=True,
                pass_fds=[number],
            )
        return ours, process


_nurseries: dict[asyncio.AbstractEventLoop, ZygoteProcess] = {}


def nursery() -> ZygoteProcess:
    loop = asyncio.get_running_loop()
    for other in [loop_ for loop_ in _nurseries if loop_.is_closed()]:
        _nurseries.pop(other).close()
    return _nurseries.setdefault(loop, ZygoteProcess())


async def start(factory: Callable[[], asyncio.SubprocessProtocol], control: int, alive: int) -> KeeperTransport:
    """A server below the nursery. OSError."""
    keeper_socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        pipes = Pipes()
    except OSError:
        keeper_socket.close()
        theirs.close()
        raise
    given = [theirs.fileno(), control, alive, *pipes.theirs]
    forking = asyncio.get_running_loop().run_in_executor(threads, nursery().fork, given)
    try:
        try:
            await asyncio.shield(forking)
        finally:
            await asyncio.wait([forking])  # also when cancelled: it uses the descriptors
            theirs.close()
            pipes.close_theirs()
    except BaseException:  # also when cancelled
        keeper_socket.close()
        pipes.close_ours()
        raise
    return await attached(factory, keeper_socket, pipes)
