"""Jobs verify the whole chain and rotate keys, and running them twice does no harm."""

import errno
import json
import os
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from servers import crypto, keyring
from servers.audit.record import Actor
from servers.credentials import rotation
from servers.enums import AuditAction, AuditOutcome, JobKind, JobState
from servers.jobs import lifecycle, requesting, running, work
from servers.models import AuditEvent, BackgroundJob, Server, ServerValue
from tests.servers.jobs.conftest import chain_of, details, ring_text

pytestmark = pytest.mark.django_db


def done(kind: JobKind, user: Any, actor: Actor) -> BackgroundJob:
    job = requesting.request(kind, user, actor)
    running.run(str(job.uid))
    job.refresh_from_db()
    return job


def test_a_person_has_the_whole_log_verified_and_beginning_and_end_are_in_it(admin: Any, actor: Actor) -> None:
    chain_of(1_234)
    count = AuditEvent.objects.count() + 1  # the request adds one
    job = done(JobKind.VERIFICATION, admin, actor)
    assert (job.state, job.detail) == (JobState.SUCCEEDED, f"All {count:,} events verified.")
    assert job.result == {"ok": True, "checked": count}
    asked, verified = AuditEvent.objects.filter(action__startswith="instance:").order_by("seq")
    assert (asked.action, asked.actor_name, asked.ip) == (AuditAction.JOB_REQUEST, "ada", "192.0.2.7")
    assert (verified.action, verified.outcome, verified.actor_name) == (AuditAction.AUDIT_VERIFY, "ok", "ada")
    assert details(verified)["checked"] == count


@pytest.mark.usefixtures("tamperable")
def test_a_scheduled_verification_writes_an_event_only_of_a_broken_chain() -> None:
    chain_of(9)
    job = requesting.request_scheduled(JobKind.VERIFICATION)
    assert job is not None
    running.run(str(job.uid))
    assert not AuditEvent.objects.filter(action=AuditAction.AUDIT_VERIFY).exists()
    AuditEvent.objects.filter(seq=7).update(subject="forged")
    job = requesting.request_scheduled(JobKind.VERIFICATION)
    assert job is not None
    running.run(str(job.uid))
    job.refresh_from_db()
    assert (job.state, job.result["first_bad_seq"]) == (JobState.FAILED, 7)
    event = AuditEvent.objects.get(action=AuditAction.AUDIT_VERIFY)
    assert (event.outcome, event.actor_name) == (AuditOutcome.FAILED, "mcpadmin")
    assert details(event)["first_bad_seq"] == 7


# --- rotation ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def values(keyring_file: Path) -> list[ServerValue]:
    server = Server.objects.create(slug="s", name="S", transport="stdio", command="true", enabled=False)
    rows = []
    for number in range(120):
        row = ServerValue(server=server, kind="environment", name=f"V{number}", secret=True)
        row.sealed, row.key_id = crypto.seal(f"v-{number}", table="servers_servervalue", uid=row.uid, field="sealed")
        rows.append(row)
    return ServerValue.objects.bulk_create(rows)


def opened(row: ServerValue) -> str:
    place = {"table": "servers_servervalue", "uid": row.uid, "field": "sealed"}
    return crypto.open_sealed(row.sealed, key_id=row.key_id, **place).reveal()


def test_a_superuser_rotates_and_every_value_opens_under_the_new_key(
    values: list[ServerValue], keyring_file: Path, admin: Any, actor: Actor
) -> None:
    job = done(JobKind.ROTATION, admin, actor)
    ring = json.loads(keyring_file.read_text())
    assert set(ring["keys"]) == {"k1", ring["current"]}
    assert ring["current"] != "k1"
    assert job.detail == f"120 values encrypted with key {ring['current']}."
    rows = list(ServerValue.objects.order_by("pk"))
    assert {row.key_id for row in rows} == {ring["current"]}
    assert [opened(row) for row in rows] == [f"v-{number}" for number in range(120)]
    event = AuditEvent.objects.get(action=AuditAction.KEYS_ROTATE)
    assert (event.outcome, event.actor_name) == ("ok", "ada")
    assert details(event)["renewed"] == 120
    assert not any(key in json.dumps(job.result) + event.body for key in ring["keys"].values())


def test_an_interrupted_rotation_goes_on_with_the_key_that_it_made(
    values: list[ServerValue], keyring_file: Path, admin: Any, actor: Actor
) -> None:
    job = requesting.request(JobKind.ROTATION, admin, actor)
    first = lifecycle.claim(str(job.uid))
    assert first is not None
    assert work.rotate_keys(running.JobProgress(first)).ok
    made = json.loads(keyring_file.read_text())
    lifecycle.give_back(first)  # simulates a crash after the last value but before the final state
    running.run(str(job.uid))
    job.refresh_from_db()
    assert json.loads(keyring_file.read_text()) == made
    assert (job.state, job.detail) == (JobState.SUCCEEDED, f"0 values encrypted with key {made['current']}.")


@pytest.fixture
def another_machine(values: list[ServerValue], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key ring is the old one, and each pass of a rotation meets a value that it has written."""
    first, renewed = values[0], rotation._renewed

    def with_an_old_value(*given: Any) -> Iterator[int]:
        yield from renewed(*given)
        ServerValue.objects.filter(pk=first.pk).update(sealed=first.sealed, key_id="k1")

    monkeypatch.setattr(rotation, "_renewed", with_an_old_value)
    monkeypatch.setattr(rotation, "_PASSES", 2)
    monkeypatch.setattr(rotation.rotate, "__defaults__", (lambda renewed: None, 0.0))


ADVICE = (
    "Values that another machine encrypted with an old key: 1. Copy the key ring to every machine, then rotate again."
)


@pytest.mark.usefixtures("another_machine")
def test_a_rotation_beside_another_machine_with_the_old_ring_is_no_failure_and_says_what_is_next(
    keyring_file: Path, admin: Any, actor: Actor
) -> None:
    job = done(JobKind.ROTATION, admin, actor)
    current = json.loads(keyring_file.read_text())["current"]
    assert (job.state, job.result["left"]) == (JobState.SUCCEEDED, {"k1": 1})
    assert job.detail.endswith(f"encrypted with key {current}. {ADVICE}")
    assert AuditEvent.objects.get(action=AuditAction.KEYS_ROTATE).outcome == AuditOutcome.OK


@pytest.mark.usefixtures("another_machine")
def test_the_command_says_the_same_and_removes_no_key(keyring_file: Path) -> None:
    said = StringIO()
    call_command("rotate_keys", stdout=said)
    assert said.getvalue().endswith(f"{ADVICE}\n")
    with pytest.raises(CommandError, match="Copy the key ring to every machine"):
        call_command("rotate_keys", "--retire")
    assert "k1" in json.loads(keyring_file.read_text())["keys"]


def test_large_values_are_renewed_in_batches_of_limited_size(
    values: list[ServerValue], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(bytes(values[0].sealed or b""))
    monkeypatch.setattr(rotation, "BATCH_BYTES", 3 * (size + 2))
    assert rotation.begin() is not None
    renewed: list[int] = []
    rotation.rotate(renewed.append, settle=0.0)
    assert renewed == list(range(3, 121, 3))
    monkeypatch.setattr(rotation, "BATCH_BYTES", 1)
    assert rotation.begin() is not None
    assert rotation.rotate(settle=0.0).renewed == 120, "one that is larger than a batch is a batch of its own"
    assert [opened(row) for row in ServerValue.objects.order_by("pk")] == [f"v-{number}" for number in range(120)]


def test_values_come_under_the_current_key_of_a_ring_that_is_kept_elsewhere(
    values: list[ServerValue], keyring_file: Path, settings: Any, admin: Any, actor: Actor
) -> None:
    settings.KEYRING = ring_text("k1", "k2")
    before = keyring_file.read_text()
    job = done(JobKind.ROTATION, admin, actor)
    assert job.detail == "120 values encrypted with key k2."
    assert keyring_file.read_text() == before


def test_a_ring_that_lacks_a_key_stops_the_rotation_before_it_begins(
    values: list[ServerValue], keyring_file: Path, admin: Any, actor: Actor
) -> None:
    keyring_file.write_text(ring_text("other"))
    keyring.forget_file()
    job = done(JobKind.ROTATION, admin, actor)
    assert (job.state, job.detail) == (JobState.FAILED, "The key ring lacks k1. Restore the key ring first.")
    assert json.loads(keyring_file.read_text())["current"] == "other"


def test_a_link_to_the_ring_stays_one(
    values: list[ServerValue], keyring_file: Path, admin: Any, actor: Actor, tmp_path: Path
) -> None:
    real = tmp_path / "backed up" / "ring.json"
    real.parent.mkdir()
    keyring_file.rename(real)
    keyring_file.symlink_to(real)
    assert done(JobKind.ROTATION, admin, actor).state == JobState.SUCCEEDED
    assert keyring_file.is_symlink()
    assert len(json.loads(real.read_text())["keys"]) == 2
    assert os.listdir(real.parent) == [real.name]


def test_a_ring_that_cannot_be_written_is_said(
    values: list[ServerValue], keyring_file: Path, admin: Any, actor: Actor
) -> None:
    keyring_file.with_name(f".{keyring_file.name}.{os.getpid()}").mkdir()  # blocks the path of the new file
    job = done(JobKind.ROTATION, admin, actor)
    assert (job.state, job.detail) == (JobState.FAILED, "The key ring file cannot be written (Is a directory).")
    assert {row.key_id for row in ServerValue.objects.all()} == {"k1"}


@pytest.mark.parametrize("options", [[], ["--prepare"]])
def test_a_command_that_cannot_replace_the_ring_says_so_and_leaves_no_copy_of_its_keys(
    values: list[ServerValue], keyring_file: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    def busy(_draft: Path, _target: Path) -> None:  # as for a file that is mounted alone
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    before = sorted(os.listdir(keyring_file.parent))
    monkeypatch.setattr(Path, "replace", busy)
    with pytest.raises(CommandError, match=r"^The key ring file cannot be written \(Device or resource busy\)\.$"):
        call_command("rotate_keys", *options)
    assert sorted(os.listdir(keyring_file.parent)) == before


def test_a_command_whose_reader_leaves_early_goes_on_to_the_last_value(
    values: list[ServerValue], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Left(StringIO):
        """As a pipe to `head`."""

        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(rotation, "BATCH", 50)
    call_command("rotate_keys", stdout=Left())
    assert not rotation.left()
