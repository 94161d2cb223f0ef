"""While the database is away, results are written to disk at once; after the worker's death another worker merges
them."""

import asyncio
import errno
import json
import os
import signal
import sqlite3
import stat
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import DataError, connection

from servers import keyring
from servers.audit import payload_privacy, payloads, writer
from servers.audit.record import Actor
from servers.crypto import SealError
from servers.models import PrivacySettings
from sessions.calls import claims
from sessions.calls.claims import CallOutcome, PendingCall
from sessions.connections.lifecycle import Lease
from sessions.enums import CallState
from sessions.host.calls import spool
from sessions.host.calls.spool import Spool, SpooledOutcome
from sessions.host.db import Database
from sessions.housekeeping import dead_workers, heartbeats
from sessions.models import Call
from tests.servers.jobs.conftest import ring_text
from tests.sessions.host.conftest import StartWorker
from tests.sessions.host.harness import Effects, await_ready, effect_session, ended, eventually, wake
from tests.sessions.host.make import make_call, make_hold, make_me, make_session, make_worker

RESULT = CallOutcome(CallState.SUCCEEDED, '{"content":[{"type":"text","text":"ü"}]}')
UID = uuid.UUID(int=7)
ORDER = PendingCall(
    1, UID, 1, "tools/call", "echo", '{"secret":"argument"}', "digest", Actor(1, "ada", "127.0.0.1"), "{}"
)
HOLD = Lease(1, UID, 1, UID, "Files", "shared", 1, UID, 3, "w1@here")
KEPT = SpooledOutcome(ORDER, HOLD, RESULT)


@pytest.fixture
def mine(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", UID)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool" / f"{UID}.jsonl"


def kept_call(server: str = "files") -> SpooledOutcome:
    """A sent call with its outcome."""
    session = make_session(server)
    lease, call = make_hold(session), make_call(session, "echo", secret="argument")
    pending = claims.read_pending_call(call.uid)
    assert pending is not None
    assert claims.claim(pending, lease)
    return SpooledOutcome(pending, lease, RESULT)


def test_a_line_brings_back_what_was_kept_but_never_the_arguments() -> None:
    line = KEPT.line()
    assert b"secret" not in line
    read = SpooledOutcome.of(line)
    assert (read.lease, read.outcome) == (HOLD, RESULT)
    assert read.call == replace(ORDER, arguments="", definition="")


def test_the_file_is_for_its_owner_only_and_goes_when_the_database_has_all(mine: Spool, path: Path) -> None:
    asyncio.run(mine.keep(KEPT))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    asyncio.run(mine.done(UID))
    assert not path.exists()


def test_a_full_spool_keeps_nothing_more_and_stops_no_one(
    mine: Spool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "LIMIT", len(KEPT.line()) + 10)
    asyncio.run(mine.keep(KEPT))
    asyncio.run(mine.keep(KEPT))
    assert path.read_bytes() == KEPT.line()


def disk(monkeypatch: pytest.MonkeyPatch, *, takes: int, then: Callable[[int, bytes], int]) -> None:
    """Of the first write it takes this many bytes, and then does this."""
    write, writes = os.write, []

    def partly(descriptor: int, data: bytes) -> int:
        writes.append(data)
        return write(descriptor, data[:takes]) if len(writes) == 1 else then(descriptor, data)

    monkeypatch.setattr(spool.os, "write", partly)


def test_a_line_that_the_disk_takes_in_parts_is_kept_whole(
    mine: Spool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk(monkeypatch, takes=50, then=os.write)
    asyncio.run(mine.keep(KEPT))
    assert path.read_bytes() == KEPT.line()


def test_a_line_that_the_disk_does_not_take_spoils_no_other(
    mine: Spool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    asyncio.run(mine.keep(KEPT))
    with monkeypatch.context() as patched:
        disk(patched, takes=50, then=full)
        asyncio.run(mine.keep(KEPT))
    asyncio.run(mine.keep(KEPT))
    assert path.read_bytes() == KEPT.line() * 2


def test_a_line_that_was_cut_is_left_out(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(KEPT.line() + b"[]\n" + KEPT.line()[:40])
    found, closed = spool._read(path)
    assert ([kept.outcome for kept in found], closed) == ([RESULT], [])


@pytest.mark.django_db
def test_only_spools_of_dead_or_unknown_workers_are_merged(tmp_path: Path) -> None:
    me, living, dead = (make_worker(make_me(node=node)).uid for node in ("me", "living", "dead"))
    unknown = uuid.uuid4()
    for uid in (me, living, dead, unknown):
        (tmp_path / f"{uid}.jsonl").touch()
    (tmp_path / "notes.jsonl").touch()
    found = {path.stem for path in spool.left_behind(tmp_path, me, {dead})}
    assert found == {str(dead), str(unknown)}


@pytest.mark.django_db
def test_a_result_that_comes_after_the_burial_is_kept_as_late() -> None:
    kept = kept_call()
    heartbeats.deregister(kept.lease.worker_uid)
    dead_workers.reap([])
    spool._finish(SpooledOutcome.of(kept.line()))
    call = Call.objects.select_related("late_result").get()
    assert call.state == CallState.OUTCOME_UNKNOWN
    assert call.late_result is not None
    assert payloads.read(call.late_result) == RESULT.result
    spool._finish(SpooledOutcome.of(kept.line()))  # a second merge changes nothing
    assert Call.objects.get().version == call.version


@pytest.mark.integration
@pytest.mark.skipif("sqlite" not in settings.DATABASES["default"]["ENGINE"], reason="one file is locked")
def test_a_result_outlives_its_worker_while_the_database_is_away(start_worker: StartWorker, effects: Effects) -> None:
    session = effect_session(effects)
    first = start_worker("w1")
    await_ready(session)
    call = make_call(session, "slow", seconds=1)
    wake(call)
    eventually(lambda: effects.count("slow"))
    holder = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None, timeout=20)
    holder.execute("BEGIN EXCLUSIVE")
    row = first.row()
    assert row is not None
    path = Path(settings.DATA_DIR) / "spool" / f"{row.uid}.jsonl"
    eventually(lambda: path.exists() and path.read_bytes().endswith(b"\n"), 30, "nothing was spooled")
    os.kill(first.pid, signal.SIGKILL)
    first.process.wait(10)
    holder.close()
    start_worker("w1")
    done = ended(call, 30)
    assert (done.state, done.result is not None) == (CallState.SUCCEEDED, True)
    assert effects.count("slow") == 1
    eventually(lambda: not path.exists())


@pytest.mark.django_db
def test_where_payloads_are_encrypted_the_spool_is_too() -> None:
    PrivacySettings.objects.create(pk=1, seal_payloads=True)
    payload_privacy.current()
    line = KEPT.line()
    assert b"content" not in line
    assert SpooledOutcome.of(line).outcome == RESULT


@pytest.mark.django_db(transaction=True)
def test_a_result_whose_key_was_removed_keeps_none_of_the_others_back_and_waits_for_it(
    tmp_path: Path, settings: Any
) -> None:
    settings.KEYRING_FILE = keyring_file = tmp_path / "keyring.json"
    keyring_file.write_text(ring_text("k1"))
    path, sealed, plain = tmp_path / f"{UID}.jsonl", kept_call("one"), kept_call("two")
    first = keyring_file.read_text()
    PrivacySettings.objects.create(pk=1, seal_payloads=True)
    payload_privacy.forget()
    payload_privacy.current()
    line = sealed.line()
    keyring_file.write_text(ring_text("k2"))
    keyring.forget_file()
    PrivacySettings.objects.update(seal_payloads=False)
    payload_privacy.forget()
    payload_privacy.current()
    path.write_bytes(line + plain.line())

    def merged() -> tuple[str, str]:
        db = Database()
        try:
            asyncio.run(spool.merge(db, [path]))
        finally:
            db.stop()
            writer.reset()
        found = dict(Call.objects.values_list("uid", "state"))
        return found[sealed.call.uid], found[plain.call.uid]

    assert merged() == (CallState.SENT, CallState.SUCCEEDED)
    assert path.read_bytes() == line, "what is written needs no second time"
    keyring_file.write_text(first)
    keyring.forget_file()
    assert merged() == (CallState.SUCCEEDED, CallState.SUCCEEDED)
    assert not path.exists()


@pytest.mark.django_db(transaction=True)
def test_a_large_result_of_a_dead_worker_is_compressed_before_it_takes_the_one_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compress, threads = payloads._compressed, []

    def noted(data: bytes) -> bytes:
        threads.append(threading.current_thread().name)
        return compress(data)

    monkeypatch.setattr(payloads, "_compressed", noted)
    path, text = tmp_path / f"{UID}.jsonl", json.dumps({"content": "words " * 30_000})
    path.write_bytes(replace(kept_call(), outcome=CallOutcome(CallState.SUCCEEDED, text)).line())
    db = Database()
    try:
        asyncio.run(spool.merge(db, [path]))
    finally:
        db.stop()
        writer.reset()
    assert payloads.read(Call.objects.get().result) == text
    assert [name.rpartition("-")[0] for name in threads] == ["host-reader"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("bare_refused", [False, True])
def test_a_result_that_the_database_refuses_keeps_none_of_the_others_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare_refused: bool
) -> None:
    path, bad, good = tmp_path / f"{UID}.jsonl", kept_call("one"), kept_call("two")
    path.write_bytes(bad.line() + good.line())
    finish = claims.finish

    def refusing(call: PendingCall, lease: Lease, outcome: CallOutcome, row: Any) -> Any:
        if call.uid == bad.call.uid and (bare_refused or outcome.result is not None):
            raise DataError("numeric value out of range")
        return finish(call, lease, outcome, row)

    monkeypatch.setattr(claims, "finish", refusing)
    db = Database()
    try:
        asyncio.run(spool.merge(db, [path]))
    finally:
        db.stop()
        writer.reset()
    found = {call.uid: call for call in Call.objects.all()}
    assert found[good.call.uid].state == CallState.SUCCEEDED
    assert found[bad.call.uid].state == (CallState.SENT if bare_refused else CallState.SUCCEEDED)
    assert bare_refused or "The database refused what the server sent (DataError)" in found[bad.call.uid].detail
    assert not path.exists(), "what no try would write is not read for ever"


@pytest.fixture
def without_keys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Payloads are encrypted, and the key ring cannot be read. The names of the threads that tried."""
    tried: list[str] = []

    def refused(*_: object, **__: object) -> None:
        tried.append(threading.current_thread().name)
        raise SealError("The key ring cannot be read.")

    monkeypatch.setattr(spool, "seal_bytes", refused)
    PrivacySettings.objects.create(pk=1, seal_payloads=True)
    payload_privacy.current()
    return tried


@pytest.mark.django_db
def test_a_result_that_cannot_be_encrypted_is_not_spooled_and_stops_no_one(
    mine: Spool, path: Path, without_keys: list[str]
) -> None:
    asyncio.run(mine.keep(KEPT))
    assert not path.exists()
    assert without_keys != []
    assert threading.current_thread().name not in without_keys
    asyncio.run(mine.done(UID))
