"""One child process: spawn, read, stop, reap; and the output of `up`.

Every part dies with `up`: on Linux by PR_SET_PDEATHSIG, elsewhere by the guard. The child sets the death signal between
fork and exec and then checks its parent again, so an `up` killed at any moment leaves no process behind. The `setpriv`
program would leave a gap there. The signal fires when the *thread* that forked ends, so only the main thread spawns.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import IO, Any

from mcpadmin import hardening
from mcpadmin.installation import ROOT
from mcpadmin.log_redaction import redact
from mcpadmin.up import ready, unprivileged

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Programs that we start for the user (a browser) carry this variable, so the sweep spares them.
KEEP_MARKER = "MCPADMIN_KEEP"
_COLOURS = {"web": "36", "worker": "33", "valkey": "32", "up": "1"}
#: begins the text of a line, whose level it is as JSON
WARNING = "warning: "
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MAX_LINE = 16_384
MAX_QUEUED = 2_000
WIDTH = 9
READ_BYTES = 65_536


def _load_prctl() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
    prctl.restype = ctypes.c_int
    return prctl


_prctl = _load_prctl()


def become_subreaper() -> None:
    """The kernel reparents orphans of the parts (a stdio server's grandchild) to this process instead of init."""
    if _prctl:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _dying_with(parent: int, *, renounce: bool) -> Callable[[], None] | None:
    prctl = _prctl
    if prctl is None:
        return None

    def before_exec() -> None:
        if renounce:
            unprivileged.renounce()
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    cwd: Path | None = None,
    *,
    renounce: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a child in a new session (the terminal's Ctrl-C is for `up` alone), with stdout and stderr as pipes.
    `renounce`: see unprivileged.renounce."""
    return subprocess.Popen(  # noqa: S603 - the command lines of supervisor.py, no shell
        argv,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
        preexec_fn=_dying_with(os.getpid(), renounce=renounce),
    )


def reap() -> Iterator[tuple[int, int]]:
    """Yield (pid, exit status as in Popen.returncode) of every child that ended, adopted ones included."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def kill_group(pid: int, how: signal.Signals) -> None:
    """Signal a part and every process still in its group."""
    try:
        os.killpg(pid, how)
    except ProcessLookupError:
        return
    except PermissionError:
        os.kill(pid, how)  # macOS refuses to signal a group that contains a zombie


def adopted(known: set[int]) -> list[int]:
    """Children of this process that it did not start itself, found in /proc (Linux only). All that it starts gets another
    session: a child in its own one belongs to the script that became `up` by exec."""
    me = os.getpid()
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit()) if _prctl else iter(())
    mine = (pid for pid in pids if pid not in known and _parent_of(pid) == me)
    return [pid for pid in mine if not _is_in_our_session(pid) and not _is_kept(pid)]


def _parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_in_our_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(0)
    except ProcessLookupError:
        return True  # it has ended


def _is_kept(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{KEEP_MARKER}=1".encode() in file.read().split(b"\0")
    except OSError:
        return False


def describe_exit(status: int) -> str:
    if status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    return f"exited with status {status}"


class Output:
    """What `up` prints: lines prefixed with the part's name. A thread writes them, so a paused terminal blocks no part.

    With MCPADMIN_LOG_FORMAT=json each line, from any part, is one JSON object without a prefix.

    Bounded: while the terminal accepts no lines, the newest are dropped and their number is printed later."""

    def __init__(self, descriptor: int = 1, *, as_json: bool = False) -> None:
        self._descriptor, self._json = descriptor, as_json
        self._colour = os.isatty(descriptor) and "NO_COLOR" not in os.environ
        self._queue: queue.Queue[str | None] = queue.Queue(MAX_QUEUED)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="output", daemon=True)
        self._thread.start()

    def say(self, text: str, part: str = "up", level: str = "info") -> None:
        if self._json and not text.strip():
            return
        line = self._line(text, part, "warning" if part == "up" and text.startswith(WARNING) else level)
        try:
            if self._dropped:
                words = f"({self._dropped} lines were not shown: the terminal was too slow)"
                self._queue.put_nowait(self._line(words, "up", "warning"))
                self._dropped = 0
            self._queue.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Wait at most a second for room in the queue, and at most another for the thread to drain it."""
        try:
            self._queue.put(None, timeout=1)
        except queue.Full:
            return
        self._thread.join(1)

    def _line(self, text: str, part: str, level: str) -> str:
        if self._json:
            return f"{foreign_line(part, clean(text), level)}\n"
        label = f"{part:<{WIDTH}}|"
        if self._colour:
            code = _COLOURS.get(part.rstrip("-0123456789"), "0")
            label = f"\x1b[{code}m{label}\x1b[0m"
        return f"{label} {clean(text)}\n"

    def _write(self) -> None:
        while (line := self._queue.get()) is not None:
            data = line.encode(errors="backslashreplace")
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                continue  # the reader has gone (`up | head`): the parts keep running, their output is lost


def clean(text: str) -> str:
    """Remove colour codes and control characters, printed by a part or by a server whose stderr it repeats."""
    return _CONTROL.sub("", text)[:MAX_LINE]


def foreign_line(part: str, text: str, level: str = "info") -> str:
    """One line of a part as a JSON object. A line that is JSON already only gains the name of the part."""
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        return json.dumps({**parsed, "part": part}, ensure_ascii=False)
    words = text if part == "up" else redact(text)  # `up` prints the set-up link on purpose
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"logger": part, "level": level, "at": now, "message": words, "part": part}, ensure_ascii=False)


class Lines:
    """Cuts a byte stream into lines of at most MAX_LINE and keeps the last ones for crash reports."""

    def __init__(self, keep: int = 12) -> None:
        self.last: deque[str] = deque(maxlen=keep)
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            whole.append(self._rest)
            self._rest = b""
        lines = [clean(line.decode(errors="replace").rstrip()) for line in whole]
        self.last.extend(line for line in lines if line)
        return lines

    def finish(self) -> list[str]:
        return self.feed(b"\n") if self._rest else []


@dataclass(frozen=True)
class Part:
    """The definition of one process that `up` runs: command line, readiness, time to stop."""

    name: str
    role: str  # web, worker, valkey: parts of one role stop together
    argv: tuple[str, ...]
    grace: float  # seconds between SIGTERM and SIGKILL; supervisor.STOP_SECONDS bounds the sum
    pass_fds: tuple[int, ...] = ()
    probe: Callable[[], Awaitable[None]] | None = None  # None: the part announces itself on a pipe
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # handed over by a pipe, never by `env`
    repair: Callable[[], str] | None = None  # after two false starts; returns what it did
    renounces: bool = False  # see unprivileged.renounce


class Child:
    """One running process of a part: its output, its readiness, its exit."""

    def __init__(self, part: Part, env: Mapping[str, str], output: Output) -> None:
        self._loop = asyncio.get_running_loop()
        self.part, self._output = part, output
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self.announced: asyncio.Future[None] = self._loop.create_future()
        self.said = b""  # everything read from the announcement pipe
        self._announcing = -1
        self.started = monotonic()
        self._popen = self._spawn(env)
        self.pid = self._popen.pid
        self._out, self._err = Lines(), Lines()
        self._pipes: dict[int, tuple[IO[bytes], Lines]] = {}
        self._adopt(self._popen.stdout, self._out)
        self._adopt(self._popen.stderr, self._err)

    def _spawn(self, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        env = {**env, **self.part.env}
        if self.part.probe is not None:
            return spawn(self.part.argv, env, self.part.pass_fds, ROOT, renounce=self.part.renounces)
        self._announcing, writing = os.pipe()
        os.set_blocking(self._announcing, False)
        self._loop.add_reader(self._announcing, self._read_announcement)
        with contextlib.ExitStack() as ours:
            ours.callback(os.close, writing)
            secrets = hardening.handed_over(self.part.secrets)
            ours.callback(os.close, secrets)
            pipes = {ready.VARIABLE: str(writing), hardening.PIPE_VARIABLE: str(secrets)}
            descriptors = (*self.part.pass_fds, writing, secrets)
            return spawn(self.part.argv, {**env, **pipes}, descriptors, ROOT, renounce=self.part.renounces)

    def _adopt(self, pipe: IO[bytes] | None, lines: Lines) -> None:
        if pipe is None:  # never: `spawn` requests both
            return
        descriptor = pipe.fileno()
        self._pipes[descriptor] = (pipe, lines)
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, partial(self._read, descriptor))

    def _read_announcement(self) -> None:
        try:
            while data := os.read(self._announcing, READ_BYTES):
                self.said += data
        except BlockingIOError:
            pass
        else:
            self._close_announcement()
        if self.said and not self.announced.done():
            self.announced.set_result(None)

    def _close_announcement(self) -> None:
        self._loop.remove_reader(self._announcing)
        os.close(self._announcing)
        self._announcing = -1

    def _read(self, descriptor: int) -> bool:
        """Return False when no more data is available now."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        lines = self._pipes[descriptor][1]
        for line in lines.feed(data) if data else lines.finish():
            self._output.say(line, self.part.name)
        if not data:
            self._close(descriptor)
        return bool(data)

    def _close(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        self._pipes.pop(descriptor)[0].close()

    async def ready(self) -> None:
        await (self.part.probe() if self.part.probe else asyncio.shield(self.announced))

    def ended(self, status: int) -> None:
        """Called once the pid is reaped. Reads what is left in the pipes and closes them: a grandchild may hold them
        open."""
        self._popen.returncode = status
        if self._announcing != -1:
            self._read_announcement()
        if self._announcing != -1:
            self._close_announcement()
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
        """Send SIGTERM. After `grace` seconds (or at once when `hurry` is set), send SIGKILL to the whole group."""
        if self.exited.done():
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        haste = asyncio.create_task(hurry.wait())
        ends: list[asyncio.Future[Any]] = [self.exited, haste]
        await asyncio.wait(ends, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        haste.cancel()
        if not self.exited.done():
            why = "immediately, as requested" if hurry.is_set() else f"because it did not exit within {grace:.1f} s"
            self._output.say(f"{self.part.name} killed {why}", level="warning")
        kill_group(self.pid, signal.SIGKILL)
        await asyncio.wait({self.exited}, timeout=1)
