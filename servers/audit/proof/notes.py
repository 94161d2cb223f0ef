"""Signed statements about the log as text: C2SP signed notes (c2sp.org/signed-note) around a checkpoint
(c2sp.org/tlog-checkpoint). No database, no settings. docs/audit-proof.md has the format.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from servers.enums import StatementKind

_ED25519 = b"\x01"
_SIGNATURE = "\u2014 "
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
#: stands for the hash before the first event
EMPTY_HASH = hashlib.sha256(b"").hexdigest()


class NoteInvalid(ValueError):
    """Not a statement, or not signed by a key that we trust."""


@dataclass(frozen=True)
class PublicKey:
    name: str
    key: bytes

    @property
    def id(self) -> bytes:
        return hashlib.sha256(self.name.encode() + b"\n" + _ED25519 + self.key).digest()[:4]

    @property
    def text(self) -> str:
        return f"{self.name}+{self.id.hex()}+{b64encode(_ED25519 + self.key).decode()}"

    @classmethod
    def parsed(cls, text: str) -> "PublicKey":
        """Raises NoteInvalid."""
        name, _, rest = text.strip().partition("+")
        identity, _, key = rest.partition("+")
        try:
            data = b64decode(key, validate=True)
        except ValueError as exc:
            raise NoteInvalid("This is not a public key for signed notes.") from exc
        found = cls(name, data[1:])
        if data[:1] != _ED25519 or len(data) != 33 or found.id.hex() != identity:
            raise NoteInvalid("This is not a public key for signed notes.")
        return found


@dataclass(frozen=True)
class Statement:
    """`hash` is that of event `seq`, in hexadecimal; `more` contains the extension lines besides time and kind."""

    kind: StatementKind
    seq: int
    hash: str
    at: datetime
    more: Mapping[str, str] = field(default_factory=dict)
    note: str = field(default="", compare=False)
    key: PublicKey | None = field(default=None, compare=False)


def signed(statement: Statement, private: Ed25519PrivateKey, key: PublicKey) -> str:
    lines = {"time": stamp(statement.at), "kind": statement.kind.value, **statement.more}
    text = "\n".join(
        [
            key.name,
            str(statement.seq),
            b64encode(bytes.fromhex(statement.hash or EMPTY_HASH)).decode(),
            *(f"{name} {value}" for name, value in lines.items()),
            "",
        ]
    )
    signature = b64encode(key.id + private.sign(text.encode())).decode()
    return f"{text}\n{_SIGNATURE}{key.name} {signature}\n"


def opened(note: str, trusted: Iterable[PublicKey]) -> Statement:
    """The statement, if one of these keys signed it. Raises NoteInvalid."""
    text, separator, signatures = note.rpartition("\n\n")
    if not separator or not note.endswith("\n"):
        raise NoteInvalid("This is not a signed note.")
    key = _signer(text + "\n", signatures, trusted)
    origin, *lines = text.split("\n")
    if origin != key.name:
        raise NoteInvalid("The statement is about another log.")
    try:
        more = dict(line.split(" ", 1) for line in lines[2:])
        at = datetime.strptime(more.pop("time"), _TIME).replace(tzinfo=UTC)
        kind, digest = StatementKind(more.pop("kind")), b64decode(lines[1], validate=True).hex()
        return Statement(kind, int(lines[0]), digest, at, more, note, key)
    except (ValueError, KeyError, IndexError) as exc:
        raise NoteInvalid("The signed text is not a statement about an audit log.") from exc


def _signer(text: str, signatures: str, trusted: Iterable[PublicKey]) -> PublicKey:
    keys = {(key.name, key.id): key for key in trusted}
    for line in signatures.splitlines():
        name, _, encoded = line.removeprefix(_SIGNATURE).partition(" ")
        try:
            data = b64decode(encoded, validate=True)
        except ValueError:
            continue
        if (key := keys.get((name, data[:4]))) is None:
            continue
        try:
            Ed25519PublicKey.from_public_bytes(key.key).verify(data[4:], text.encode())
        except InvalidSignature:
            continue
        return key
    raise NoteInvalid("No key of this log signed the statement.")


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime(_TIME)


def time_of(text: str) -> datetime:
    """Raises ValueError."""
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC)
