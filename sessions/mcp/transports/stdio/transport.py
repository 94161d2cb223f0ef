"""The stdio transport: framing, diagnostics and the meaning of a lost child.

Source: 2025-11-25 *Transports / stdio*. The loop's own pipe callbacks handle the bytes; there is no reader task.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Final

from ...core import json_text
from ...core.errors import Fault, LaunchError, McpError, NotReady, ProtocolError, TransportError
from ...core.limits import Limits
from ...core.session import Outgoing
from ..base import Receiver, Transport
from ..recording import UNRECORDED, Recorder
from . import command, tiers
from .child import Child
from .confinement import Confinement, Tier, first_out_of_reach, first_overlap, first_through_own_link, is_of_the_system
from .framing import Lines, Oversized, TailBuffer, shortened
from .refusals import REFUSAL_MARK, refused_path
from .tiers import confines

#: different refusals shown in one run
_REFUSALS = 50
_MESSAGE: Final = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*"|(\[))')
_LINE_OF_MESSAGE: Final = re.compile(rb'\s*"jsonrpc"\s*:\s*"2\.0"\s*,?\s*')
_SEVERAL_LINES: Final = "The server writes one message over several lines. Each message must be one line of JSON."


class StdioTransport(Transport):
    kind = "stdio"
    exchange = False

    def __init__(
        self,
        *,
        command: str,
        args: tuple[str, ...],
        cwd: str | None,
        env: Callable[[], Mapping[str, str]],
        limits: Limits,
        confinement: Confinement | None = None,
        recorder: Recorder = UNRECORDED,
    ) -> None:
        """`confinement` None: the child may do what this process may do."""
        self._command, self._args, self._cwd, self._env = command, args, cwd, env
        self._confinement, self._recorder = confinement, recorder
        self._refusals: set[str] = set()
        self._limits = limits
        self._child: Child | None = None
        self._receiver: Receiver | None = None
        self._stdout = Lines(limits.message_bytes)
        self._stderr = Lines(limits.line_chars * 4)
        self._tail = TailBuffer(limits.stderr_bytes)
        self._noise = 0
        self._several_lines = False
        self._spoken = False
        #: the message over the limit that is arriving does not name its request at its beginning
        self._unnamed = False
        self._over = False
        #: what was reported to the receiver as the end
        self._loss: McpError | None = None

    @property
    def stderr_tail(self) -> str:
        """The end of stderr, for diagnosis."""
        return self._tail.tail()

    @property
    def pid(self) -> int | None:
        """The pid of the direct child, which may be the isolation wrapper around the server."""
        return self._child.pid if self._child else None

    async def resolve(self) -> str:
        return await self._find(command.environment(self._env(), self._confinement))

    async def _find(self, env: Mapping[str, str]) -> str:
        """The program's path, or its name where an image has programs of its own. LaunchError."""
        by_image = self._confinement is not None and os.sep not in self._command and (await confines()).has_image
        try:
            found = command.find(self._command, self._cwd, env)
        except LaunchError as problem:
            if by_image and problem.fault is Fault.COMMAND_NOT_FOUND:
                return self._command
            raise
        return self._command if by_image and is_of_the_system(found) else found

    async def connect(self, receiver: Receiver, *, check: bool = False) -> str:
        env = command.environment(self._env(), self._confinement)
        program = await self._find(env)
        self._receiver = receiver
        self._child = Child(self._on_stdout, self._on_stderr, self._on_end, lambda: receiver.shedding)
        try:
            await self._start(self._child, (program, *self._args), env)
        except LaunchError:
            self._over = True  # the end of the remaining confinement processes is not reported
            raise
        except (OSError, ValueError) as exc:
            self._over = True
            reason = getattr(exc, "strerror", None) or str(exc)
            raise LaunchError(Fault.SPAWN_FAILED, f"{program} could not be started: {reason}.") from exc
        return f"started as process {self._child.pid}"

    async def _start(self, child: Child, argv: tuple[str, ...], env: Mapping[str, str]) -> None:
        if self._confinement is None:
            return await child.start(argv, cwd=self._cwd, env=env)
        found = await confines()
        if found.tier is Tier.NONE:
            words = f"This worker cannot confine stdio servers, so it starts none. {found.reason}"
            raise LaunchError(Fault.NOT_CONFINED, words)
        cwd = self._cwd or self._confinement.home
        named = (cwd, *self._confinement.read, *self._confinement.write)
        if link := first_through_own_link(named, self._confinement):
            words = f"{link} leads through a link in a folder that this server can change, so it is not followed. Name the folder that it leads to."
            raise LaunchError(Fault.SPAWN_FAILED, words)
        if taken := first_overlap(named, self._confinement):
            words = f"{taken} contains mcpadmin's own files, which no server may access. Grant a smaller folder."
            raise LaunchError(Fault.SPAWN_FAILED, words)
        if closed := first_out_of_reach(named):
            words = f"{closed} is granted to this server, but mcpadmin runs as user {tiers.own_user()}, who has no access to it. Give that user access to it, or do not grant it."
            raise LaunchError(Fault.SPAWN_FAILED, words)
        if "\0" in "".join((*argv, *env, *env.values())):
            raise ValueError("embedded null byte")
        await child.start_confined(argv, cwd=cwd, env=env, confinement=self._confinement, on_refused=self._on_refused)

    async def send(self, outgoing: Outgoing) -> None:
        if self._child is None or self._over:
            raise NotReady("The server's process is not running.")
        if self._child.blocked:
            await self._child.writable()
            if self._over or outgoing.answered:
                raise NotReady("The server's process ended before the message was written.")
        if not self._child.reads:
            await self._child.aftermath()
            detail = "The server closed its input, so the message could not be sent."
            error = self._loss or TransportError(Fault.CONNECTION_LOST, detail, may_have_run=False)
            raise error.again(may_have_run=False)
        outgoing.left = True
        self._recorder.sent(outgoing)
        self._child.write(outgoing.data + b"\n")

    async def close(self) -> None:
        self._over = True
        if self._child is not None:
            await self._child.stop()

    # -- called by the child's pipes

    def _on_stdout(self, chunk: bytes) -> None:
        for line in self._stdout.feed(chunk):
            if self._over:
                return
            if isinstance(line, Oversized):
                self._oversized(line)
            else:
                self._line(line)
        if self._stdout.skipped > self._limits.line_bytes:
            endless = self._line_error(f"one line of more than {self._limits.line_bytes} bytes")
            self._lose(self._message_error() if self._unnamed else endless)

    def _line(self, line: bytes) -> None:
        assert self._receiver is not None  # noqa: S101  set before the child starts
        if self._is_message(line):
            self._spoken = True
            self._recorder.received(line)
            self._receiver.message(line)
        elif line.strip():
            self._print(line)

    def _is_message(self, line: bytes) -> bool:
        """Servers also print other JSON, and log lines that quote a message."""
        start = _MESSAGE.match(line) if b'"jsonrpc"' in line else None
        return start is not None and (start.group(1) is None or self._is_json(line))

    def _is_json(self, line: bytes) -> bool:
        """A log line may begin like a batch: with a level or a time in brackets."""
        try:
            json_text.parse(line, self._limits)
        except ProtocolError as exc:
            return exc.fault is not Fault.INVALID_MESSAGE
        return True

    def _print(self, line: bytes) -> None:
        assert self._receiver is not None  # noqa: S101  set before the child starts
        self._receiver.line("stdout", _quoted(self._text(line)))
        if not self._several_lines and _LINE_OF_MESSAGE.fullmatch(line):
            self._several_lines = True
            self._receiver.line("stdio", _SEVERAL_LINES)
        self._noise += 1
        if not self._spoken and self._noise >= self._limits.noise_lines:
            why = _SEVERAL_LINES if self._several_lines else "Its logs belong on stderr."
            self._lose(
                TransportError(
                    Fault.STDOUT_NOISE,
                    f"The server printed {self._noise} lines to stdout, none of them a message. {why}",
                    may_have_run=True,
                    stderr_tail=self.stderr_tail,
                )
            )

    def _oversized(self, line: Oversized) -> None:
        """Report an oversized line. Many servers write the id of the request behind the result."""
        assert self._receiver is not None  # noqa: S101  set before the child starts
        most = self._limits.message_bytes
        error = self._message_error()
        if line.tail is not None:
            if self._unnamed:
                self._unnamed = False
                self._receiver.broken(error, line.head + line.tail)
        elif line.head.lstrip()[:1] in (b"{", b"["):
            self._unnamed = not self._receiver.broken(error, line.head, unfinished=True)
        else:
            error = self._line_error(f"a line of more than {most} bytes that is not a message")
            self._receiver.broken(error, line.head)

    def _message_error(self) -> ProtocolError:
        most = self._limits.message_bytes
        return ProtocolError(Fault.MESSAGE_LIMIT, f"The server sent a message over the limit of {most} bytes.")

    def _line_error(self, what: str) -> ProtocolError:
        return ProtocolError(Fault.LINE_LIMIT, f"The server printed {what}. Its logs belong on stderr.")

    def _on_stderr(self, chunk: bytes) -> None:
        self._tail.add(chunk)
        for line in self._stderr.feed(chunk):
            if isinstance(line, Oversized) and line.tail is not None:
                continue
            text = _quoted(self._beginning(line.head) if isinstance(line, Oversized) else self._text(line))
            if text and self._receiver is not None:
                self._receiver.line("stderr", text)
                if self._confinement is not None and (path := refused_path(text, self._confinement)):
                    self._on_refused(f"refused access to {path}")

    def _on_refused(self, what: str) -> None:
        """Report once what the confinement refused, among the server's own messages."""
        if self._receiver is None or what in self._refusals or len(self._refusals) >= _REFUSALS:
            return
        self._refusals.add(what)
        line = f"{REFUSAL_MARK} {what}"[: self._limits.line_chars]
        self._tail.add(line.encode() + b"\n")
        self._receiver.line("stderr", line)

    def _text(self, line: bytes) -> str:
        return shortened(line.decode("utf-8", "replace").rstrip(), self._limits.line_chars)

    @staticmethod
    def _beginning(head: bytes) -> str:
        text = head.decode("utf-8", "replace")
        return shortened(text, len(text) - 1)

    def _on_end(self, exit_code: int | None) -> None:
        """The child ended or closed its output. Called after its last output was delivered."""
        if self._over:
            return
        rest = self._stdout.rest()
        if rest:
            self._line(rest)
        self._lose(self._ended(exit_code))

    def _ended(self, exit_code: int | None) -> TransportError:
        if exit_code is None:
            fault, what = Fault.CONNECTION_LOST, "The server closed its output."
        elif exit_code < 0:
            fault, what = Fault.PROCESS_EXITED, f"The server's process was ended by signal {-exit_code}."
        else:
            fault, what = Fault.PROCESS_EXITED, f"The server's process ended with exit code {exit_code}."
        return TransportError(fault, what, may_have_run=True, exit_code=exit_code, stderr_tail=self.stderr_tail)

    def _lose(self, error: McpError) -> None:
        if not self._over and self._receiver is not None:
            self._over, self._loss = True, error
            self._receiver.lost(error)


def _quoted(text: str) -> str:
    """Quoted, because only our own lines may begin with the mark."""
    return f"“{text}”" if text.startswith(REFUSAL_MARK) else text
