"""Runs a package manager to completion, as if it were the child that starts the server: with the same variables, in the
same isolation."""

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from servers.storable import storable
from sessions.mcp.core.errors import Fault, LaunchError, McpError, TransportError
from sessions.mcp.core.session import Outgoing
from sessions.mcp.transports.registry import StdioSpec, open_transport
from sessions.mcp.transports.stdio import Confinement, Host

#: lines kept of each output
LINES = 4_000
_UNLIMITED = 2**31
_NAMES_REGISTRY = re.compile("registry|index|proxy|find_links", re.IGNORECASE)


@dataclass
class Output:
    code: int | None = None
    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join((*self.stderr, *self.stdout))


class _Receiver:
    shedding = False

    def __init__(self, output: Output, on_line: Callable[[str], None]) -> None:
        self._output, self._on_line = output, on_line
        self.ended: asyncio.Future[McpError] = asyncio.get_running_loop().create_future()

    def message(self, data: bytes, answering: Outgoing | None = None, status: int | None = None) -> None:
        self.line("stdout", data.decode("utf-8", "replace"))

    def broken(self, error: McpError, head: bytes, *, unfinished: bool = False) -> bool:
        self.line("stderr", error.detail)
        return True

    def line(self, stream: str, text: str) -> None:
        text = storable(text)  # a package's own output may be part of it
        lines = self._output.stdout if stream == "stdout" else self._output.stderr
        if len(lines) < LINES:
            lines.append(text)
        if stream == "stderr":
            self._on_line(text)

    def feed(self, lost: str, *, retried: bool = True) -> None:
        """A process has no such stream."""

    def lost(self, error: McpError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


@dataclass(frozen=True)
class Programs:
    """`spec`: the server's own command, with the environment that it would get. `seconds`: the timeout of each
    program."""

    spec: StdioSpec = field(repr=False)
    on_line: Callable[[str], None]
    seconds: float

    def beside(self, name: str) -> str:
        """A program that comes with the launcher: from its folder if the command has one."""
        folder = os.path.dirname(self.spec.command)
        path = os.path.join(folder, name)
        return path if folder and os.access(path, os.X_OK) else name

    async def run(self, program: str, *arguments: str, folder: Path, **variables: str) -> Output:
        """Raises LaunchError if it cannot be started, TransportError if it takes too long. `variables`: set unless
        the environment sets them."""
        spec = replace(
            self.spec,
            command=program,
            args=arguments,
            cwd=str(folder),
            env=lambda: self._environment(variables),
            limits=replace(self.spec.limits, noise_lines=_UNLIMITED),
            confinement=self._confinement(folder, arguments),
        )
        output = Output()
        receiver = _Receiver(output, self.on_line)
        transport = await open_transport(spec)
        try:
            async with asyncio.timeout(self.seconds):
                await transport.connect(receiver)
                error = await receiver.ended
        except TimeoutError:
            words = (
                f"{os.path.basename(program)} did not finish within {self.seconds:.0f} s. Raise the connect timeout."
            )
            raise TransportError(Fault.TIMEOUT, words, may_have_run=False) from None
        finally:
            await transport.close()
        if error.fault is not Fault.PROCESS_EXITED and error.fault is not Fault.CONNECTION_LOST:
            raise LaunchError(Fault.PACKAGE_FAILED, error.detail)
        output.code = getattr(error, "exit_code", None)
        return output

    def _confinement(self, folder: Path, arguments: Iterable[str]) -> Confinement | None:
        """The package manager also reaches the registries that a variable or an option names."""
        if self.spec.confinement is None:
            return None
        hosts = []
        named = (value for name, value in self.spec.env().items() if _NAMES_REGISTRY.search(name))
        for text in (*named, *(part for argument in arguments for part in argument.split("=", 1))):
            with suppress(ValueError):
                parts = urlsplit(text)
                if parts.scheme in ("http", "https") and parts.hostname:
                    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
                    hosts.append(Host.parsed(f"{name}:{parts.port or (443 if parts.scheme == 'https' else 80)}"))
        return self.spec.confinement.installing(str(folder), hosts)

    def _environment(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        return dict(variables) | dict(self.spec.env())
