"""Signed notes as the specification writes them, and nothing that is not signed by a trusted key."""

from base64 import b64encode
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from servers.audit.proof import verify_export
from servers.audit.proof.notes import NoteInvalid, PublicKey, Statement, opened, signed
from servers.enums import StatementKind

AT = datetime(2026, 11, 24, 14, 6, 43, 120_000, tzinfo=UTC)
#: the vector of c2sp.org/signed-note: a note of the Go checksum database's example key
EXAMPLE_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
EXAMPLE_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n\n"
    "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)


def made(name: str = "log.example/audit-1") -> tuple[Ed25519PrivateKey, PublicKey]:
    private = Ed25519PrivateKey.from_private_bytes(b"7" * 32)
    return private, PublicKey(name, private.public_key().public_bytes_raw())


def test_a_statement_is_written_as_a_checkpoint_and_read_again() -> None:
    private, key = made()
    statement = Statement(StatementKind.CUT, 48_211, "2d" * 32, AT, {"first": "1", "until": "x y"})
    note = signed(statement, private, key)
    assert note.splitlines()[:6] == [
        "log.example/audit-1",
        "48211",
        b64encode(bytes.fromhex("2d" * 32)).decode(),
        "time 2026-11-24T14:06:43.120000Z",
        "kind cut",
        "first 1",
    ]
    assert opened(note, [key]) == statement
    name, public = verify_export.parse_key(key.text)
    read = verify_export.open_note(note, {name: public})
    assert read is not None
    assert (read["seq"], read["hash"], read["time"], read["until"]) == (48_211, "2d" * 32, AT, "x y")


def test_a_key_and_a_note_of_another_implementation_are_understood() -> None:
    key = PublicKey.parsed(EXAMPLE_KEY)
    assert key.text == EXAMPLE_KEY
    assert verify_export.parse_key(EXAMPLE_KEY)[0] == ("PeterNeumann", key.id)
    with pytest.raises(NoteInvalid, match="another log"):  # its signature holds; it is no checkpoint of this key's log
        opened(EXAMPLE_NOTE, [key])
    with pytest.raises(NoteInvalid, match="No key"):
        opened(EXAMPLE_NOTE.replace("answer", "Answer"), [key])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("48211", "48212"),
        ("kind regular", "kind cut"),
        ("time 2026", "time 2025"),
        ("\u2014 log", "\u2014 dog"),
        ("\n\n", "\n"),
    ],
)
def test_a_changed_note_is_refused_by_both(old: str, new: str) -> None:
    private, key = made()
    note = signed(Statement(StatementKind.REGULAR, 48_211, "2d" * 32, AT), private, key).replace(old, new)
    with pytest.raises(NoteInvalid):
        opened(note, [key])
    name, public = verify_export.parse_key(key.text)
    assert verify_export.open_note(note, {name: public}) is None or "dog" in note


def test_another_signature_beside_ours_does_not_matter() -> None:
    private, key = made()
    note = signed(Statement(StatementKind.REGULAR, 1, "2d" * 32, AT), private, key)
    text, _, line = note.rpartition("\n\n")
    cosigned = f"{text}\n\n\u2014 witness.example/w {b64encode(b'x' * 68).decode()}\n{line}"
    assert opened(cosigned, [key]).seq == 1


@pytest.mark.parametrize("text", ["", "name", "name+00000000+AAAA", "a+b+c", EXAMPLE_KEY.replace("c74f", "c74e")])
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(NoteInvalid):
        PublicKey.parsed(text)
