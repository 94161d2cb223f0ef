"""Starts a confined child: hands the job to runner.py and waits until the server's program runs."""

import asyncio
import marshal
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ...core.errors import Fault, LaunchError
from . import keeper_client
from .confinement import PYTHON

#: seconds for building the confinement; the machine may be busy with many starts
_PATIENCE: Final = 60.0


#: starts the process that confines itself with these descriptors: its control socket, and both ends of a pipe that
#: tells it whether its parent is alive
Launch = Callable[
    [Callable[[], asyncio.SubprocessProtocol], tuple[int, int, int]], Awaitable[asyncio.SubprocessTransport]
]


def by_program(prefix: tuple[str, ...]) -> Launch:
    """Launch as a child of this process. `prefix`: the programs that wrap it."""

    async def launch(
        factory: Callable[[], asyncio.SubprocessProtocol], descriptors: tuple[int, int, int]
    ) -> asyncio.SubprocessTransport:
        command = (*prefix, *PYTHON, *map(str, descriptors))
        loop = asyncio.get_running_loop()
        transport, _ = await loop.subprocess_exec(
            factory, *command, cwd="/", env={}, start_new_session=True, pass_fds=descriptors
        )
        return transport

    return launch


async def by_keeper(
    factory: Callable[[], asyncio.SubprocessProtocol], descriptors: tuple[int, int, int]
) -> asyncio.SubprocessTransport:
    control, alive, _ = descriptors
    return await keeper_client.start(factory, control, alive)


async def start(
    factory: Callable[[], asyncio.SubprocessProtocol], launch: Launch, job: Mapping[str, Any]
) -> tuple[asyncio.SubprocessTransport, int]:
    """The transport of the child and the listener for its `connect` calls. LaunchError names the step that failed;
    OSError if even the first program cannot be started."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    inside, outside = os.pipe()
    try:
        with ours:
            ours.setblocking(False)
            try:
                transport = await launch(factory, (theirs.fileno(), inside, outside))
            finally:
                theirs.close()
                os.close(inside)
            try:
                async with asyncio.timeout(_PATIENCE):
                    listener = await _run(loop, ours, job)
            except TimeoutError:
                transport.close()
                words = f"The server could not be confined within {_PATIENCE:.0f} s."
                raise LaunchError(Fault.SPAWN_FAILED, words) from None
            except BaseException:  # also when cancelled: leave no process behind
                transport.close()
                raise
            return transport, listener
    finally:
        os.close(outside)  # it told the runner that its parent is alive; from here on the kernel watches that


async def _run(loop: asyncio.AbstractEventLoop, ours: socket.socket, job: Mapping[str, Any]) -> int:
    data = marshal.dumps(dict(job))
    try:
        await loop.sock_sendall(ours, len(data).to_bytes(8, "big") + data)
        await _readable(loop, ours.fileno())
        report, descriptors, _, _ = socket.recv_fds(ours, 4096, 2, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        report, descriptors = b"", []
    if len(descriptors) < 2:
        raise _failure(report, str(job["program"]))
    listener, status = descriptors
    try:
        await _readable(loop, status)
        report = os.read(status, 4096)  # empty: closed because the program started
        if report:
            raise _failure(report, str(job["program"]))
    except BaseException:  # also when cancelled: leave no descriptor open
        os.close(listener)
        raise
    finally:
        os.close(status)
    return listener


async def _readable(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    readable = loop.create_future()

    def wake() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(descriptor, wake)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)


def _failure(report: bytes, program: str) -> LaunchError:
    number, _, step = report.decode("utf-8", "replace").partition(" ")
    reason = os.strerror(int(number)) if number.isdecimal() else ""
    if not reason:
        return LaunchError(Fault.SPAWN_FAILED, f"{program} could not be started: the process that confines it ended.")
    if step == "starting the program":
        return LaunchError(Fault.SPAWN_FAILED, f"{program} could not be started: {reason}.")
    return LaunchError(Fault.SPAWN_FAILED, f"{program} could not be started. {step[:1].upper()}{step[1:]}: {reason}.")
