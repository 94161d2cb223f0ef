"""The processes of a benchmark: echo servers, and drivers that put clients under load."""

import json
import selectors
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.tools.stack import ROOT, clean_environment

HERE = Path(__file__).resolve().parent
READY_SECONDS = 30.0
STOP_SECONDS = 10.0


def stdio_command(era: str) -> list[str]:
    return [sys.executable, "-S", "-E", str(HERE / "echo_stdio.py"), era]


def http_server(era: str, *options: str) -> AbstractContextManager[str]:
    """The base URL of an echo server that runs while the block does."""
    return server([sys.executable, "-S", "-E", str(HERE / "echo_http.py"), "--era", era, *options])


def websocket_server() -> AbstractContextManager[str]:
    return server([sys.executable, str(HERE / "echo_websocket.py")])


@contextmanager
def server(command: list[str]) -> Iterator[str]:
    """The first line that a server prints on stderr: its URL."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield line_of(process.stderr, READY_SECONDS)
    finally:
        stop(process)


class Driver:
    """A client in a separate process. Lines on its stdin start each load."""

    def __init__(self, command: list[str], words: list[str], cwd: Path = ROOT, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*command, *words],
            cwd=cwd,
            env=clean_environment() | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, callers: int, seconds: float, *, patience: float = READY_SECONDS, **more: object) -> dict[str, float]:
        """`patience`: seconds for all that it does besides the load."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"callers": callers, "seconds": seconds, **more}) + "\n")
        self.process.stdin.flush()
        return json.loads(line_of(self.process.stdout, patience + seconds))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        stop(self.process, patience=STOP_SECONDS)


def line_of(stream: object, seconds: float) -> str:
    """The next line of a process. Raises RuntimeError when none arrives in time."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)  # type: ignore[arg-type]  # a pipe of Popen has a fileno
        if not selector.select(seconds):
            raise RuntimeError(f"a process of the benchmark said nothing for {seconds:g} s")
    line = stream.readline()  # type: ignore[attr-defined]  # as above
    if not line:
        raise RuntimeError("a process of the benchmark ended early")
    return str(line).strip()


def stop(process: "subprocess.Popen[str]", patience: float = 0.0) -> None:
    """Wait `patience` seconds for it to exit, then send SIGTERM, then SIGKILL."""
    for seconds, end in ((patience, process.terminate), (STOP_SECONDS, process.kill), (STOP_SECONDS, None)):
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            if end is not None:
                end()
        else:
            break
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
