"""One child process, started in its own session and reliably ended.

It uses the loop's subprocess protocol instead of streams: a stream would cost a task, a copy and a wake-up per
message.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ..fairness import Share
from . import confined_start, processes, tiers
from .confinement import Confinement, job, threads
from .connect_gate import AddressRules, Gate
from .keeper_client import KeeperTransport
from .lifetime import PREFIXES, isolation, resolved

#: seconds to wait: after closing stdin, after SIGTERM, after SIGKILL
PATIENCE: Final = (2.0, 2.0, 2.0)
#: seconds to wait for more output after the exit (a grandchild can hold the pipe open), or for the exit after the
#: output ended
_AFTERMATH: Final = 0.5
#: messages written in one system call
_TOGETHER: Final = 16
#: bytes of stderr read per second (and burst); a child that writes more has to wait
_STDERR_RATE: Final = 1024 * 1024
_STDERR_BURST: Final = 16 * _STDERR_RATE
_STDERR_PAUSE: Final = 0.25


class Child(asyncio.SubprocessProtocol):
    """`on_end(exit code or None)` is called once, after the last output, unless `stop()` was called first. `crowded`:
    see fairness.Share."""

    def __init__(
        self,
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
        on_end: Callable[[int | None], None],
        crowded: Callable[[], bool],
    ) -> None:
        self._on_output = {1: on_stdout, 2: on_stderr}
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._unwritten: list[bytes] = []
        self._turn_is_open = False
        self._exited = asyncio.Event()
        self._resumed: asyncio.Future[None] | None = None
        self._aftermath: asyncio.TimerHandle | None = None
        self._open_outputs = {1, 2}
        self._share = Share(self._loop.time, crowded)
        self._stderr_credit, self._stderr_at = float(_STDERR_BURST), self._loop.time()
        self._stopping = False
        self._ended = False
        self._gate: Gate | None = None
        #: whose processes are all ended with the child, where no PID namespace does that
        self._user: processes.User | None = None
        #: has a keeper, which ends all that the child started and takes the signals
        self._is_kept = False
        self.pid = 0

    async def start_confined(
        self,
        argv: tuple[str, ...],
        *,
        cwd: str,
        env: Mapping[str, str],
        confinement: Confinement,
        on_refused: Callable[[str], None],
    ) -> None:
        """LaunchError, OSError or ValueError if the program cannot be started. `on_refused`: see connect_gate.Gate."""
        tier = await tiers.confines()
        if not tier.alone and confinement.uid is not None:
            self._user = processes.User(confinement.uid, confinement.mount_point)
            await self._loop.run_in_executor(threads, self._user.enter)  # ends what an earlier run left behind
        program, *arguments = argv
        made = await self._loop.run_in_executor(
            threads, lambda: job(confinement, program, arguments, cwd=cwd, environment=env, confines=tier)
        )
        transport, listener = await confined_start.start(lambda: self, await tiers.launch(tier, made), made)
        self._is_kept = isinstance(transport, KeeperTransport)
        self.pid = transport.get_pid()
        reach = AddressRules(confinement.network, confinement.hosts, on_refused)
        folders = (*confinement.own, cwd, *confinement.write, *tier.own_tmp_folders)
        self._gate = Gate(listener, reach, folders, confinement.uid, on_refused)

    async def start(self, argv: tuple[str, ...], *, cwd: str | None, env: Mapping[str, str]) -> None:
        """OSError or ValueError if the program cannot be started."""
        prefix = resolved(PREFIXES[await isolation()])
        transport, _ = await self._loop.subprocess_exec(
            lambda: self, *prefix, *argv, cwd=cwd, env=env, start_new_session=True
        )
        self.pid = transport.get_pid()

    # -- writing

    @property
    def blocked(self) -> bool:
        """Whether the child has not read what was written already."""
        return self._resumed is not None

    @property
    def reads(self) -> bool:
        """False once nothing can reach the child any more: it closed its input, or has exited."""
        return self._stdin is not None and not self._stdin.is_closing() and not self._exited.is_set()

    async def aftermath(self) -> None:
        """Wait until the end of a child that no longer reads was reported, if it is about to end."""
        await asyncio.sleep(2 * _AFTERMATH)

    async def writable(self) -> None:
        """Wait until the child reads again. The caller's deadline bounds the wait."""
        while self._resumed is not None:
            await asyncio.shield(self._resumed)

    def write(self, data: bytes) -> None:
        """Write the first message of a loop iteration at once, so that the child can start on it. Later messages of the
        same iteration are combined into few system calls."""
        if self._turn_is_open:
            self._unwritten.append(data)
            if len(self._unwritten) >= _TOGETHER:
                self._flush()
        else:
            self._turn_is_open = True
            self._loop.call_soon(self._end_turn)
            self._put(data)

    def _end_turn(self) -> None:
        self._turn_is_open = False
        self._flush()

    def _flush(self) -> None:
        data, self._unwritten = b"".join(self._unwritten), []
        if data:
            self._put(data)

    def _put(self, data: bytes) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)

    # -- ending

    async def stop(self) -> None:
        """Close stdin, send SIGTERM, then SIGKILL, with a wait after each. Finally kill the rest of the group."""
        self._stopping = True
        self._resume()
        if self._aftermath is not None:
            self._aftermath.cancel()
        try:
            await self._descend()
        finally:
            self._kill(signal.SIGKILL)
            if self._is_kept:  # by then nothing is left of it
                await self._gone(PATIENCE[2])
            if self._transport is not None:
                self._transport.close()
            self._close_gate()
            await self._leave_user()

    async def _leave_user(self) -> None:
        user, self._user = self._user, None
        if user is not None:
            await self._loop.run_in_executor(threads, user.leave)

    async def _descend(self) -> None:
        if not self.pid:
            return
        self._flush()
        if self._stdin is not None:
            self._stdin.close()
        for patience, step in zip(PATIENCE, (signal.SIGTERM, signal.SIGKILL, None), strict=True):
            if await self._gone(patience):
                return
            if step is not None:
                self._kill(step)

    async def _gone(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        except TimeoutError:
            return False
        return True

    def _kill(self, number: signal.Signals) -> None:
        """Signal the whole group. Its id is the child's pid, because the child leads its own session."""
        if self.pid <= 0:
            return
        if self._is_kept:
            if self._transport is not None and not self._exited.is_set():
                self._transport.send_signal(number)
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass  # the group is empty, as intended
        except PermissionError:
            pass  # the group's last member is a zombie that cannot be signalled

    # -- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: Any) -> None:
        if self._stopping:
            return
        if fd == 2:
            self._on_output[2](data)
            self._limit_stderr(len(data))
            return
        self._share.begin()
        self._on_output[1](data)
        if rest := self._share.end():
            self._rest(1, rest)

    def _limit_stderr(self, size: int) -> None:
        """Limit reads of stderr: a flood would otherwise keep one core of the worker busy."""
        now = self._loop.time()
        earned = (now - self._stderr_at) * _STDERR_RATE
        self._stderr_credit = min(float(_STDERR_BURST), self._stderr_credit + earned) - size
        self._stderr_at = now
        if self._stderr_credit < 0:
            self._rest(2, _STDERR_PAUSE - self._stderr_credit / _STDERR_RATE)

    def _rest(self, fd: int, seconds: float) -> None:
        """Pause reading this output; meanwhile the child blocks in its write. Not after its exit: little is left then,
        and it must be read before the end."""
        if not self._exited.is_set() and (pipe := self._output(fd)) is not None:
            pipe.pause_reading()
            self._loop.call_later(seconds, self._read_on, fd)

    def _read_on(self, fd: int) -> None:
        if (pipe := self._output(fd)) is not None and not pipe.is_closing():
            pipe.resume_reading()

    def _output(self, fd: int) -> asyncio.ReadTransport | None:
        pipe = self._transport.get_pipe_transport(fd) if self._transport else None
        return cast("asyncio.ReadTransport | None", pipe)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open_outputs.discard(fd)
        if fd == 0:
            self._resume()
        if fd != 2:
            self._wind_up()

    def process_exited(self) -> None:
        self._exited.set()
        self._resume()
        for fd in self._on_output:
            self._read_on(fd)
        self._wind_up()

    def pause_writing(self) -> None:
        if self._resumed is None and not self._stopping:
            self._resumed = self._loop.create_future()

    def resume_writing(self) -> None:
        self._resume()

    def _resume(self) -> None:
        if self._resumed is not None:
            if not self._resumed.done():
                self._resumed.set_result(None)
            self._resumed = None

    def _wind_up(self) -> None:
        """Finish now if the process and both outputs are gone. Otherwise wait a moment for the rest."""
        if self._stopping or self._ended:
            return
        if self._exited.is_set() and not self._open_outputs:
            self._finish()
        elif self._aftermath is None and (self._exited.is_set() or 1 not in self._open_outputs):
            self._aftermath = self._loop.call_later(_AFTERMATH, self._finish)

    def _close_gate(self) -> None:
        if self._gate is not None:
            self._gate.close()

    def _finish(self) -> None:
        if self._stopping or self._ended:
            return
        self._ended = True
        self._close_gate()
        if self._aftermath is not None:
            self._aftermath.cancel()
        returncode = self._transport.get_returncode() if self._transport else None
        self._on_end(returncode)
