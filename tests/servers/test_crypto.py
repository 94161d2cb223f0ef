"""Sealing: a ciphertext opens in its own place, under its own key, and nowhere else."""

import json
import os
from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from servers import crypto
from servers.models import Server, ServerDraft, ServerValue

CANARY = "canary-5f1d0c"
PLACE = {"table": "servers_servervalue", "uid": uuid4(), "field": "sealed"}


@pytest.fixture
def ring(settings: Any, tmp_path: Path) -> Callable[..., Path]:
    """Writes a ring of fresh keys with these ids; the first is the current one."""
    path = tmp_path / "keyring.json"
    settings.KEYRING_FILE = path

    def write(*ids: str, **keys: str) -> Path:
        keys = {key_id: b64encode(os.urandom(32)).decode() for key_id in ids} | keys
        replacement = tmp_path / "new.json"
        replacement.write_text(json.dumps({"current": next(iter(keys)), "keys": keys}))
        replacement.replace(path)
        return path

    return write


def test_a_sealed_value_opens_in_its_own_place(ring: Callable[..., Path]) -> None:
    ring("k1")
    sealed, key_id = crypto.seal(CANARY, **PLACE)
    assert CANARY.encode() not in sealed
    assert crypto.open_sealed(sealed, key_id=key_id, **PLACE).reveal() == CANARY


def test_the_same_value_is_sealed_differently_each_time(ring: Callable[..., Path]) -> None:
    ring("k1")
    assert crypto.seal(CANARY, **PLACE)[0] != crypto.seal(CANARY, **PLACE)[0]


@pytest.mark.parametrize("moved", [{"uid": uuid4()}, {"field": "plain"}, {"table": "servers_serverdraft"}])
def test_a_ciphertext_that_was_moved_does_not_open(ring: Callable[..., Path], moved: dict[str, Any]) -> None:
    ring("k1")
    sealed, key_id = crypto.seal(CANARY, **PLACE)
    with pytest.raises(crypto.SealBroken):
        crypto.open_sealed(sealed, key_id=key_id, **PLACE | moved)


@pytest.mark.parametrize("place", [0, 5, 20, -1])
def test_a_changed_byte_does_not_open(ring: Callable[..., Path], place: int) -> None:
    ring("k1")
    sealed, key_id = crypto.seal(CANARY, **PLACE)
    broken = bytearray(sealed)
    broken[place] ^= 1
    with pytest.raises(crypto.SealBroken):
        crypto.open_sealed(bytes(broken), key_id=key_id, **PLACE)


@pytest.mark.parametrize("sealed", [b"", b"\x01", b"\x01" + b"0" * 12])
def test_a_cut_ciphertext_does_not_open(ring: Callable[..., Path], sealed: bytes) -> None:
    ring("k1")
    with pytest.raises(crypto.SealBroken):
        crypto.open_sealed(sealed, key_id="k1", **PLACE)


def test_a_key_that_the_ring_lost_is_named(ring: Callable[..., Path]) -> None:
    ring("old")
    sealed, key_id = crypto.seal(CANARY, **PLACE)
    ring("new")
    with pytest.raises(crypto.UnknownKey, match="'old'"):
        crypto.open_sealed(sealed, key_id=key_id, **PLACE)


def test_another_key_under_the_same_id_does_not_open(ring: Callable[..., Path]) -> None:
    ring("k1")
    sealed, key_id = crypto.seal(CANARY, **PLACE)
    ring("k1")
    with pytest.raises(crypto.SealBroken):
        crypto.open_sealed(sealed, key_id=key_id, **PLACE)


def test_an_old_key_still_opens_after_a_new_one_became_current(ring: Callable[..., Path]) -> None:
    path = ring("old")
    sealed, key_id = crypto.seal(CANARY, **PLACE)
    ring("new", **json.loads(path.read_text())["keys"])
    assert crypto.open_sealed(sealed, key_id=key_id, **PLACE).reveal() == CANARY
    assert crypto.seal(CANARY, **PLACE)[1] == "new"


def test_a_lost_ring_says_which_file_is_missing(ring: Callable[..., Path]) -> None:
    path = ring("k1")
    path.unlink()
    with pytest.raises(crypto.KeyRingMissing, match=r"keyring\.json"):
        crypto.seal(CANARY, **PLACE)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"current": "a", "keys": {"a": "c2hvcnQ="}}', '{"current":"b","keys":{}}']
)
def test_a_damaged_ring_is_refused_without_quoting_it(ring: Callable[..., Path], text: str) -> None:
    path = ring("k1")
    path.write_text(text)
    with pytest.raises(crypto.KeyRingMissing) as refused:
        crypto.seal(CANARY, **PLACE)
    assert "c2hvcnQ" not in str(refused.value)


@pytest.mark.django_db
def test_keys_that_rows_need_and_the_ring_lacks_are_listed(ring: Callable[..., Path], admin: Any) -> None:
    ring("k1")
    server = Server.objects.create(slug="s", name="S", transport="stdio")
    ServerValue.objects.create(server=server, kind="header", name="A", secret=True, sealed=b"x", key_id="gone")
    ServerValue.objects.create(server=server, kind="header", name="B", secret=True, sealed=b"x", key_id="k1")
    ServerValue.objects.create(server=server, kind="header", name="C", plain="x")
    for key_id, hours in (("drafted", 1), ("expired", -1)):
        moment = timezone.now() + timedelta(hours=hours)
        ServerDraft.objects.create(user=admin, transport="stdio", sealed=b"x", key_id=key_id, expires_at=moment)
    assert crypto.missing_keys() == ["drafted", "gone"]
