"""The key ring: the keys that wrap every data key, kept outside the database.

It comes from one of three places, the first that is set: a command of the operator (MCPADMIN_KEYRING_COMMAND, for a KMS
or a secret manager), the environment (MCPADMIN_KEYRING), a file (MCPADMIN_KEYRING_FILE). All hold the same JSON:
{"current": "k1", "keys": {"k1": "<32 bytes in base64>"}}.

    SealError
    ├── KeyringMissing   no readable key ring
    ├── UnknownKey       the key ring lacks the key that a row was sealed with
    └── SealBroken       (servers.crypto) a ciphertext that does not open in its place
"""

import json
import os
import shlex
import subprocess
import threading
import time
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import structlog
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

KEY_BYTES = 32
#: how long the output of the operator's command is used: after that, a key made current there is used, and one removed
#: there is not
COMMAND_SECONDS = 60.0
#: how long a check of the file is valid. Each check lets other threads run, and every encrypted call would wait for it
#: several times
FILE_SECONDS = 0.5
_COMMAND_TIMEOUT = 15.0
#: a serving process runs the command this often, so that even a slow answer arrives before the last one is too old
RENEW_SECONDS = COMMAND_SECONDS - _COMMAND_TIMEOUT - 5.0
RETRY_SECONDS = 5.0
log = structlog.get_logger(__name__)


class SealError(Exception):
    """A secret cannot be sealed or opened. The message is safe to show: it contains no key and no value."""


class KeyringMissing(SealError):
    pass


class UnknownKey(SealError):
    pass


class KeySource(Enum):
    FILE = "file"
    ENVIRONMENT = "environment"
    COMMAND = "command"


@dataclass(frozen=True, repr=False)
class Keyring:
    current: str
    ciphers: Mapping[str, AESGCM]

    def cipher(self, key_id: str) -> AESGCM:
        try:
            return self.ciphers[key_id]
        except KeyError:
            raise UnknownKey(
                f"The key ring has no key {key_id!r}. Restore the key ring that this database used."
            ) from None


_cached: tuple[object, Keyring] | None = None
#: of the file: its path, until when this counts, and its version
_seen: tuple[Path, float, object] | None = None
_guard = threading.Lock()


@dataclass(frozen=True)
class _Fetched:
    command: str
    until: float
    ring: Keyring


@dataclass(frozen=True)
class _Failed:
    """Why the ring could not be renewed. `until`: the next attempt is over by then."""

    command: str
    until: float
    words: str


_fetched: _Fetched | None = None
_failed: _Failed | None = None


def source() -> KeySource:
    if settings.KEYRING_COMMAND:
        return KeySource.COMMAND
    return KeySource.ENVIRONMENT if settings.KEYRING else KeySource.FILE


def load() -> Keyring:
    """The current key ring: notices a file that another process replaced within FILE_SECONDS, and a changed output of the
    command within COMMAND_SECONDS."""
    global _cached
    if source() is KeySource.COMMAND:
        return _of_command(settings.KEYRING_COMMAND)
    known, version = _cached, _version()
    if known is not None and known[0] == version:
        return known[1]
    with _guard:
        if _cached is None or _cached[0] != version:
            _cached = (version, parse(_text(), described()))
        return _cached[1]


def keep_renewed() -> None:
    """Call once when a serving process starts. From then on, a thread runs the operator's command before the ring is
    too old, so that nothing else waits for it: that would be a transaction and, on SQLite, every other writer."""
    if source() is KeySource.COMMAND:
        threading.Thread(target=_renew_always, name="keyring", daemon=True).start()


def _renew_always() -> None:
    while True:
        time.sleep(_renew())


def _renew() -> float:
    """Returns in how many seconds to do it again."""
    global _failed
    command, before = settings.KEYRING_COMMAND, _failed
    try:
        with _guard:
            _fetch(command)
    except KeyringMissing as problem:
        if before is None:
            log.warning("keyring.not_renewed", problem=str(problem))
        _failed = _Failed(command, time.monotonic() + RETRY_SECONDS + 2 * _COMMAND_TIMEOUT, str(problem))
        return RETRY_SECONDS
    _failed = None
    return RENEW_SECONDS


def _of_command(command: str) -> Keyring:
    if ring := _fresh(command):
        return ring
    failed = _failed
    if failed is not None and failed.command == command and time.monotonic() < failed.until:
        raise KeyringMissing(failed.words)  # it is being retried; waiting for that would hold up everything
    with _guard:
        return _fresh(command) or _fetch(command)


def _fresh(command: str) -> Keyring | None:
    fetched = _fetched
    if fetched is None or fetched.command != command or time.monotonic() >= fetched.until:
        return None
    return fetched.ring


def _fetch(command: str) -> Keyring:
    global _fetched
    began = time.monotonic()
    ring = parse(_printed(command), described())
    _fetched = _Fetched(command, began + COMMAND_SECONDS, ring)
    return ring


def cipher(key_id: str) -> AESGCM:
    """The cipher of the key that a row was sealed with. Another process may have created the key a moment ago."""
    if key_id not in load().ciphers:
        forget_file()
    return load().cipher(key_id)


def forget_file() -> None:
    """Read the file again, because this process replaced it."""
    global _seen
    _seen = None


def described() -> str:
    """A description of the key ring for messages; never its content."""
    words = {
        KeySource.COMMAND: "from MCPADMIN_KEYRING_COMMAND",
        KeySource.ENVIRONMENT: "in MCPADMIN_KEYRING",
        KeySource.FILE: str(settings.KEYRING_FILE),
    }
    return f"The key ring {words[source()]}"


def _version() -> object:
    """A value that changes when the key ring in the file or the environment may have changed."""
    global _seen
    kind = source()
    if kind is KeySource.ENVIRONMENT:
        return kind, settings.KEYRING
    path, seen, now = settings.KEYRING_FILE, _seen, time.monotonic()
    if seen is not None and seen[0] == path and now < seen[1]:
        return seen[2]
    try:
        stat = os.stat(path)
    except OSError as exc:
        raise KeyringMissing(f"The key ring {path} cannot be read: {exc.strerror}.") from exc
    version = path, stat.st_mtime_ns, stat.st_ino, stat.st_size
    _seen = path, now + FILE_SECONDS, version
    return version


def _text() -> str:
    if source() is KeySource.ENVIRONMENT:
        return str(settings.KEYRING)
    path = Path(settings.KEYRING_FILE)
    try:
        return path.read_text()
    except (OSError, ValueError) as exc:
        raise KeyringMissing(f"The key ring {path} cannot be read ({type(exc).__name__}).") from None


def _printed(command: str) -> str:
    """The output of the operator's own command. Nothing that users of the pages entered ever reaches it."""
    try:
        done = subprocess.run(  # noqa: S603  the operator's own words, from the environment alone
            shlex.split(command), capture_output=True, text=True, timeout=_COMMAND_TIMEOUT
        )
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        raise KeyringMissing(f"{described()} cannot be read: the command failed ({type(exc).__name__}).") from None
    if done.returncode:
        raise KeyringMissing(f"{described()} cannot be read: the command exited with status {done.returncode}.")
    return done.stdout


def parse(text: str, words: str) -> Keyring:
    """Raises KeyringMissing, which quotes nothing of `text`."""
    try:
        document = json.loads(text)
        keys = {str(key_id): b64decode(key, validate=True) for key_id, key in document["keys"].items()}
        current = str(document["current"])
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise KeyringMissing(f"{words} is damaged ({type(exc).__name__}).") from None
    if current not in keys or any(len(key) != KEY_BYTES for key in keys.values()):
        raise KeyringMissing(f"{words} is damaged: it needs 32-byte keys and a current one.")
    return Keyring(current, {key_id: AESGCM(key) for key_id, key in keys.items()})
