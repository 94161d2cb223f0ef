"""Starts the command `mcpadmin` as a fork of a process that has loaded it, which saves Python's start and the libraries.
A fork has descriptors, variables, signals and an exit status of its own, as a program has. Tests of what precedes the
code (the locale, a closed stream, a terminal, the command line that others see) start the program itself.

`python -m tests.tools.warm_program` is that process. `start` talks to it.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from io import BufferedReader, FileIO, TextIOWrapper
from typing import IO, Any

from tests.tools.prepared import ROOT, clean_environment

LOADED = "mcpadmin.command_line.verbs"
MOST_BYTES = 100_000
_one_at_a_time = threading.Lock()
_door: socket.socket | None = None


class Program:
    """A running command, with what tests use of `subprocess.Popen`. `stdin`, `stdout` and `stderr` are pipes."""

    def __init__(self, words: tuple[str, ...], environment: dict[str, str], **given: IO[str]) -> None:
        """`given`: files in place of pipes."""
        ours: dict[str, IO[str] | None] = {}
        theirs: list[int] = []
        for name in ("stdin", "stdout", "stderr"):
            if name in given:
                ours[name] = None
                theirs.append(os.dup(given[name].fileno()))
                continue
            read, write = os.pipe()
            ours[name] = open(write, "w") if name == "stdin" else open(read)  # noqa: SIM115  # closed by communicate
            theirs.append(read if name == "stdin" else write)
        self.stdin, self.stdout, self.stderr = ours.values()
        self.returncode: int | None = None
        self.pid = _ask(["start", list(words), environment], theirs)
        self._descriptor = os.pidfd_open(self.pid)
        for descriptor in theirs:
            os.close(descriptor)

    def communicate(self, given: str = "", timeout: float = 60) -> tuple[str, str]:
        """What it wrote until its end; nothing of a stream that is no pipe."""
        told: dict[str, str] = {}

        def read(name: str, pipe: IO[str] | None) -> None:
            if pipe is not None:
                with pipe:
                    told[name] = pipe.read()

        pipes = {"stdout": self.stdout, "stderr": self.stderr}.items()
        readers = [threading.Thread(target=read, args=each, daemon=True) for each in pipes]
        for reader in readers:
            reader.start()
        if self.stdin is not None:
            try:
                with self.stdin as pipe:
                    pipe.write(given)
            except BrokenPipeError:  # it ended without reading
                pass
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return told.get("stdout", ""), told.get("stderr", "")

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._descriptor], [], [], 0)[0]:
            os.close(self._descriptor)
            self.returncode = _ask(["reap", self.pid], [])
        return self.returncode

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            select.select([self._descriptor], [], [], timeout)
        if (status := self.poll()) is None:
            self.send_signal(signal.SIGKILL)
            raise subprocess.TimeoutExpired(f"mcpadmin {self.pid}", timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)


def _ask(order: list[Any], descriptors: list[int]) -> int:
    global _door
    with _one_at_a_time:
        if _door is None:
            _door, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.tools.warm_program", str(inside.fileno())],
                cwd=ROOT, env=clean_environment(), pass_fds=[inside.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            inside.close()
            atexit.register(process.wait)
            atexit.register(_door.close)  # runs first, and ends the process
        socket.send_fds(_door, [json.dumps(order).encode()], descriptors)
        return int(_door.recv(100))


def serve(door: socket.socket) -> None:
    importlib.import_module(LOADED)
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(door, MOST_BYTES, 3)
        if not message:
            return
        match json.loads(message):
            case ["start", words, environment]:
                answer = os.fork()
                if answer == 0:
                    door.close()
                    return _become(words, environment, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
            case ["reap", pid]:
                answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        door.send(str(answer).encode())


def _become(words: list[str], environment: dict[str, str], descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # Python finds out when it starts whether a stream is a file. These are as unbuffered as clean_environment asks for.
    sys.stdin = TextIOWrapper(BufferedReader(FileIO(0, closefd=False)))
    sys.stdout = TextIOWrapper(FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = TextIOWrapper(FileIO(2, "w", closefd=False), write_through=True)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["mcpadmin", *words]
    importlib.import_module("mcpadmin.command_line.program").main()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
