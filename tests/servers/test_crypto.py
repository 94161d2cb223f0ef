"""A sealed value opens only in its own place and under its own key."""

import json
import os
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.apps import apps
from django.db.models import BinaryField
from django.utils import timezone

from mcpadmin.installation import ROOT
from servers import crypto, keyring, keyring_file
from servers.models import Credential, Server, ServerDraft, ServerValue
from sessions.models import Subscription
from tests.sessions.host.make import make_session
from tests.sessions.subscriptions.rows import make_subscription

CANARY = "canary-5f1d0c"
PLACE = {"table": "servers_servervalue", "uid": uuid4(), "field": "sealed"}


@pytest.fixture
def ring(settings: Any, tmp_path: Path) -> Callable[..., Path]:
    """Writes a ring of fresh keys with these ids, which counts at once. The first one is current."""
    path = tmp_path / "keyring.json"
    settings.KEYRING_FILE = path

    def write(*ids: str, **keys: str) -> Path:
        keys = {key_id: b64encode(os.urandom(32)).decode() for key_id in ids} | keys
        replacement = tmp_path / "new.json"
        replacement.write_text(json.dumps({"current": next(iter(keys)), "keys": keys}))
        replacement.replace(path)
        keyring.forget_file()
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


@pytest.mark.parametrize("place", [0, 5, 20, 70, -1])
def test_a_changed_byte_does_not_open(ring: Callable[..., Path], place: int) -> None:
    ring("k1")
    sealed, key_id = crypto.seal(CANARY, **PLACE)
    broken = bytearray(sealed)
    broken[place] ^= 1
    with pytest.raises(crypto.SealBroken):
        crypto.open_sealed(bytes(broken), key_id=key_id, **PLACE)


@pytest.mark.parametrize("sealed", [b"", b"\x01", b"\x01" + b"0" * 12, b"\x02" + b"0" * 60, b"\x02" + b"0" * 72])
def test_a_cut_ciphertext_does_not_open(ring: Callable[..., Path], sealed: bytes) -> None:
    ring("k1")
    with pytest.raises(crypto.SealBroken):
        crypto.open_sealed(sealed, key_id="k1", **PLACE)


def test_values_that_share_a_data_key_open_each_in_its_own_row_only(ring: Callable[..., Path]) -> None:
    path = ring("k1")
    rows = [(uuid4(), f"{CANARY} {number}".encode()) for number in range(3)]
    place = {"table": "mcp_sessions_wiremessage", "field": "sealed"}
    sealed, key_id = crypto.seal_together(rows, **place)
    keyring_file.use_next_key(path)
    rotated = [
        crypto.resealed(value, key_id=key_id, uid=uid, **place) for value, (uid, _) in zip(sealed, rows, strict=True)
    ]
    assert {new_id for _, new_id in rotated}.isdisjoint({key_id})
    of_first_key, of_second_key = [(value, key_id) for value in sealed], rotated
    for form in (of_first_key, of_second_key):
        for (value, opened_by), (uid, plain) in zip(form, rows, strict=True):
            assert crypto.open_bytes(value, key_id=opened_by, uid=uid, **place) == plain
            for moved in ({"uid": rows[0][0] if uid != rows[0][0] else rows[1][0]}, {"field": "body"}, {"table": "t"}):
                with pytest.raises(crypto.SealBroken):
                    crypto.open_bytes(value, key_id=opened_by, **{"uid": uid, **place, **moved})


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


def test_a_ring_that_another_process_replaced_counts_a_moment_later(
    ring: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(keyring.time, "monotonic", lambda: now)
    path = ring("k1")
    monkeypatch.setattr(keyring, "forget_file", lambda: None)  # as if it were another process
    crypto.seal(CANARY, **PLACE)
    keyring_file.use_next_key(path)
    new = json.loads(path.read_text())["current"]
    assert crypto.seal(CANARY, **PLACE)[1] == "k1"
    monkeypatch.setattr(keyring.time, "monotonic", lambda: now + keyring.FILE_SECONDS)
    assert crypto.seal(CANARY, **PLACE)[1] == new


def test_a_key_that_another_process_made_a_moment_ago_opens(ring: Callable[..., Path]) -> None:
    path = ring("k1")
    before = keyring.load(), keyring._cached, keyring._seen
    keyring_file.use_next_key(path)
    sealed, key_id = crypto.seal(CANARY, **PLACE)
    _, keyring._cached, keyring._seen = before
    assert key_id != "k1"
    assert crypto.open_sealed(sealed, key_id=key_id, **PLACE).reveal() == CANARY


def test_of_two_rotations_at_once_neither_removes_the_key_of_the_other(ring: Callable[..., Path]) -> None:
    path = ring("k1")
    used: list[str] = []

    def rotate() -> None:
        used.extend(keyring_file.use_next_key(path) for _ in range(5))

    threads = [threading.Thread(target=rotate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    document = json.loads(path.read_text())
    assert set(document["keys"]) == {"k1", *used}
    assert document["current"] in used
    assert len(set(used)) == 20


def test_a_lost_ring_says_which_file_is_missing(ring: Callable[..., Path]) -> None:
    path = ring("k1")
    path.unlink()
    keyring.forget_file()
    with pytest.raises(crypto.KeyringMissing, match=r"keyring\.json"):
        crypto.seal(CANARY, **PLACE)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"current": "a", "keys": {"a": "c2hvcnQ="}}', '{"current":"b","keys":{}}']
)
def test_a_damaged_ring_is_refused_without_quoting_it(ring: Callable[..., Path], text: str) -> None:
    path = ring("k1")
    path.write_text(text)
    with pytest.raises(crypto.KeyringMissing) as refused:
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
    ServerValue.objects.create(server=server, kind="header", name="D", secret=True)
    Credential.objects.create(name="V", kind="bearer", sealed=b"x", key_id="vault", sealed_at=timezone.now())
    subscription = make_subscription(make_session())
    Subscription.objects.filter(pk=subscription.pk).update(webhook_sealed=b"x", webhook_key_id="webhook")
    assert crypto.missing_keys() == ["drafted", "gone", "vault", "webhook"]


@pytest.mark.django_db
def test_a_key_of_another_installation_is_found_though_it_has_the_same_name(ring: Callable[..., Path]) -> None:
    ring("k1")
    uid = uuid4()
    sealed, key_id = crypto.seal("secret", table="servers_credential", uid=uid, field="sealed")
    Credential.objects.create(uid=uid, name="A", kind="bearer", sealed=sealed, key_id=key_id, sealed_at=timezone.now())
    assert crypto.wrong_keys() == []
    ring("k1")
    assert crypto.wrong_keys() == ["k1"]


def test_every_column_that_holds_sealed_values_is_known_to_the_rotation() -> None:
    sealed = {
        (model._meta.label, field.name)
        for model in apps.get_models()
        for field in model._meta.get_fields()
        if isinstance(field, BinaryField) and "sealed" in field.name
    }
    assert sealed == {(place.model, place.field) for place in crypto.sealed_fields()}


# --- envelope and earlier format ---------------------------------------------------------------------------------------
def sealed_directly(value: str, path: Path, key_id: str) -> bytes:
    """Seal as earlier versions did: directly with the ring's key."""
    key = b64decode(json.loads(path.read_text())["keys"][key_id])
    nonce = os.urandom(12)
    bound_to = f"{PLACE['table']}:{PLACE['uid']}:{PLACE['field']}:{key_id}".encode()
    return b"\x01" + nonce + AESGCM(key).encrypt(nonce, value.encode(), bound_to)


def test_a_value_of_an_earlier_version_still_opens_and_is_sealed_again(ring: Callable[..., Path]) -> None:
    old = sealed_directly(CANARY, ring("k1"), "k1")
    assert crypto.open_sealed(old, key_id="k1", **PLACE).reveal() == CANARY
    sealed, key_id = crypto.resealed(old, key_id="k1", **PLACE)
    assert sealed[:1] == b"\x02"
    assert crypto.open_sealed(sealed, key_id=key_id, **PLACE).reveal() == CANARY


def test_a_rotation_wraps_the_data_key_and_leaves_the_value(ring: Callable[..., Path]) -> None:
    path = ring("old")
    before, _ = crypto.seal(CANARY, **PLACE)
    ring("new", **json.loads(path.read_text())["keys"])
    after, key_id = crypto.resealed(before, key_id="old", **PLACE)
    assert (key_id, after[61:]) == ("new", before[61:])
    assert after[:61] != before[:61]
    ring("new", new=json.loads(path.read_text())["keys"]["new"])
    assert crypto.open_sealed(after, key_id="new", **PLACE).reveal() == CANARY


def test_a_moved_value_is_not_sealed_again_in_its_new_place(ring: Callable[..., Path]) -> None:
    ring("k1")
    sealed, key_id = crypto.seal(CANARY, **PLACE)
    with pytest.raises(crypto.SealBroken):
        crypto.resealed(sealed, key_id=key_id, **PLACE | {"uid": uuid4()})


def test_a_wrapped_key_does_not_serve_the_value_of_another_row(ring: Callable[..., Path]) -> None:
    ring("k1")
    one, key_id = crypto.seal(CANARY, **PLACE)
    other, _ = crypto.seal("other", **PLACE | {"uid": uuid4()})
    with pytest.raises(crypto.SealBroken):
        crypto.open_sealed(one[:61] + other[61:], key_id=key_id, **PLACE)


# --- where the ring comes from -------------------------------------------------------------------------------------------
def ring_text(key_id: str = "k9") -> str:
    return json.dumps({"current": key_id, "keys": {key_id: b64encode(os.urandom(32)).decode()}})


def test_the_ring_may_be_in_the_environment(ring: Callable[..., Path], settings: Any) -> None:
    ring("k1")
    settings.KEYRING = ring_text()
    assert crypto.seal(CANARY, **PLACE)[1] == "k9"


def test_the_ring_may_come_from_a_command(ring: Callable[..., Path], settings: Any, tmp_path: Path) -> None:
    ring("k1")
    (tmp_path / "ring").write_text(ring_text())
    settings.KEYRING_COMMAND = f"cat {tmp_path / 'ring'}"
    assert crypto.seal(CANARY, **PLACE)[1] == "k9"


class Runs:
    """A command that prints a ring, and how often it ran."""

    def __init__(self, folder: Path) -> None:
        self._ring, self._log = folder / "ring", folder / "runs"
        self._log.touch()
        self.command = f"sh -c 'echo ran >> {self._log}; cat {self._ring}'"

    def print(self, key_id: str) -> None:
        self._ring.write_text(ring_text(key_id))

    def fail(self) -> None:
        self._ring.unlink()

    @property
    def count(self) -> int:
        return len(self._log.read_text().split())


@pytest.fixture
def runs(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr(keyring, "_failed", None)
    runs = Runs(tmp_path)
    settings.KEYRING_COMMAND = runs.command
    runs.print("k1")
    return runs


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.monotonic() + seconds
    monkeypatch.setattr(keyring, "time", SimpleNamespace(monotonic=lambda: now))


def test_nothing_waits_for_the_command_while_its_ring_is_renewed(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keyring._renew() == keyring.RENEW_SECONDS
    runs.print("k2")
    later(monkeypatch, keyring.RENEW_SECONDS)
    keyring._renew()
    later(monkeypatch, keyring.RENEW_SECONDS + keyring.COMMAND_SECONDS - 1)
    assert (keyring.load().current, runs.count) == ("k2", 2)


def test_a_key_that_the_command_gives_no_more_is_used_for_a_minute_at_most(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring._renew()
    runs.fail()
    later(monkeypatch, keyring.RENEW_SECONDS)
    assert keyring._renew() == keyring.RETRY_SECONDS
    assert keyring.load().current == "k1"
    later(monkeypatch, keyring.COMMAND_SECONDS)
    assert keyring._renew() == keyring.RETRY_SECONDS
    tried = runs.count
    with pytest.raises(crypto.KeyringMissing, match="the command exited with status 1"):
        keyring.load()
    assert runs.count == tried, "what needs the ring does not run the command that just failed"
    runs.print("k2")
    keyring._renew()
    assert keyring.load().current == "k2"


def test_a_process_whose_ring_is_not_renewed_runs_the_command_itself(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [keyring.load().current, keyring.load().current, runs.count] == ["k1", "k1", 1]
    runs.print("k2")
    later(monkeypatch, keyring.COMMAND_SECONDS)
    assert (keyring.load().current, runs.count) == ("k2", 2)


@pytest.mark.parametrize("module", ["mcpadmin.asgi", "mcpadmin.worker"])
def test_what_serves_runs_the_command_at_its_start_and_keeps_its_ring_renewed(runs: Runs, module: str) -> None:
    code = f"import {module}, threading; print('keyring' in [thread.name for thread in threading.enumerate()])"
    environment = {**os.environ, "MCPADMIN_KEYRING_COMMAND": runs.command}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split()[-1:] == ["True"], done.stderr


@pytest.mark.parametrize("command", ["false", "/nowhere/kms", "echo c2VjcmV0", "unbalanced '"])
def test_a_command_that_gives_no_ring_is_said_without_its_words(
    ring: Callable[..., Path], settings: Any, command: str
) -> None:
    ring("k1")
    settings.KEYRING_COMMAND = command
    with pytest.raises(crypto.KeyringMissing) as refused:
        crypto.seal(CANARY, **PLACE)
    assert "c2VjcmV0" not in str(refused.value)
    assert "MCPADMIN_KEYRING_COMMAND" in str(refused.value)


def test_a_fingerprint_tells_values_apart_and_nothing_of_short_ones() -> None:
    assert crypto.fingerprint("a" * 20) != crypto.fingerprint("b" * 20)
    assert crypto.fingerprint("1234") == crypto.fingerprint("9999")
