"""Background jobs that need `sessions`: housekeeping, and a key rotation that knows every machine with a worker."""

import asyncio
import json
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from servers import keyring_file
from servers.enums import AuthorizationState, JobKind, JobState, LinkPurpose, PayloadKind
from servers.exporting import files
from servers.jobs import requesting, running
from servers.models import AccountLink, BackgroundJob, Instance, Payload, Server, ServerAuthorization, Unredacted
from sessions import tasks
from sessions.host.logs import store
from sessions.models import LogLine
from tests.servers.conftest import person
from tests.servers.jobs.conftest import ring_text
from tests.sessions.host.make import make_me, make_session, make_worker

pytestmark = pytest.mark.django_db


def newest(kind: JobKind) -> BackgroundJob:
    found = BackgroundJob.objects.filter(kind=kind).first()
    assert found is not None
    return found


def log_of(server: Server, first: int, end: int) -> None:
    line = {"server": server, "at": timezone.now(), "source": "stderr", "text": "x"}
    LogLine.objects.bulk_create([LogLine(seq=number, **line) for number in range(first, end)])


def test_the_housekeeping_leaves_one_row_with_what_it_did(monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "KEPT", 5)
    server = make_session("orders").server
    log_of(server, 1, 20)
    for _ in range(3):
        tasks.housekeeping()
    assert LogLine.objects.count() == 5
    job = BackgroundJob.objects.get()
    assert (job.kind, job.state, job.detail) == (JobKind.HOUSEKEEPING, JobState.SUCCEEDED, "Nothing to clean up.")
    log_of(server, 20, 30)
    tasks.housekeeping()
    assert newest(JobKind.HOUSEKEEPING).detail == "Cleaned up 1 log."


def test_the_housekeeping_removes_names_and_addresses_of_people_who_never_came() -> None:
    now, old = timezone.now(), timezone.now() - timedelta(days=31)
    vera = person("vera")

    def link(name: str, **fields: Any) -> None:
        given = {"purpose": LinkPurpose.INVITATION, "expires_at": now + timedelta(days=7)} | fields
        AccountLink.objects.create(name=name, email=f"{name}@example.com", digest=name, **given)

    link("open")
    link("expired", expires_at=old)
    link("expired-lately", expires_at=now - timedelta(days=29))
    link("revoked", revoked_at=old)
    link("used", expires_at=old, used_at=old, user=vera)
    link("password", purpose=LinkPurpose.PASSWORD, expires_at=old, used_at=old, user=vera)
    tasks.housekeeping()
    assert set(AccountLink.objects.values_list("name", flat=True)) == {"open", "expired-lately", "used"}
    assert newest(JobKind.HOUSEKEEPING).detail == "Cleaned up 3 links."


def test_the_housekeeping_of_a_held_copy_keeps_what_is_old(monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "KEPT", 5)
    log_of(make_session("orders").server, 1, 20)
    given = {"purpose": LinkPurpose.INVITATION, "expires_at": timezone.now() - timedelta(days=31)}
    AccountLink.objects.create(name="expired", email="expired@example.com", digest="1", **given)
    Instance.objects.update_or_create(pk=1, defaults={"held_at": timezone.now(), "place": {}})
    tasks.housekeeping()
    assert newest(JobKind.HOUSEKEEPING).detail == "Cleaned up 1 log."
    Instance.objects.update(held_at=None)
    tasks.housekeeping()
    assert newest(JobKind.HOUSEKEEPING).detail == "Cleaned up 1 link."


def test_a_step_of_the_housekeeping_that_fails_leaves_no_other_undone(monkeypatch: Any) -> None:
    def fails() -> int:
        raise IsADirectoryError("lost+found")

    monkeypatch.setattr(files, "expire", fails)
    payload = Payload.objects.create(kind=PayloadKind.ARGUMENTS, salt=b"", digest="", size=0)
    Unredacted.objects.create(payload=payload, sealed=b"", key_id="k1")
    Unredacted.objects.update(created_at=timezone.now() - 2 * tasks.UNSENT_KEPT)
    tasks.housekeeping()
    assert not Unredacted.objects.exists()
    job = newest(JobKind.HOUSEKEEPING)
    assert job.state == JobState.FAILED
    assert job.detail == "Nothing to clean up. Failed: exports. See the worker's log for the reason."


def test_the_housekeeping_forgets_sign_ins_at_servers_that_no_one_completed(django_user_model: Any) -> None:
    identity = make_session("orders").identity
    known = {"identity": identity, "user": django_user_model.objects.create_user("ann"), "sealed_client": b"x"}
    for age in (timedelta(minutes=15), -timedelta(minutes=5)):
        ServerAuthorization.objects.create(**known, state=AuthorizationState.READY, expires_at=timezone.now() - age)
    tasks.housekeeping()
    assert ServerAuthorization.objects.get().expires_at > timezone.now()


@pytest.mark.django_db(transaction=True)
def test_sign_ins_that_are_over_leave_no_trace(django_user_model: Any) -> None:
    over, lasting = [signed_in(django_user_model.objects.create_user(name)) for name in ("ann", "ben")]
    assert UserSession.objects.count() == 2
    UserSession.objects.update(last_seen_at=timezone.now() - timedelta(hours=9))
    Session.objects.filter(pk=over).update(expire_date=timezone.now() - timedelta(hours=2))
    tasks.housekeeping()
    assert list(Session.objects.values_list("pk", flat=True)) == [lasting]
    assert list(UserSession.objects.values_list("session_key", flat=True)) == [lasting]


def test_the_daily_verification_is_one_however_often_the_schedule_asks() -> None:
    for _ in range(3):
        tasks.verify_audit_log()
    assert BackgroundJob.objects.get().kind == JobKind.VERIFICATION


def test_keys_in_a_file_are_rotated_for_several_machines_only_when_the_next_one_was_copied(
    settings: Any, tmp_path: Path
) -> None:
    settings.KEYRING_FILE = tmp_path / "keyring.json"
    settings.KEYRING_FILE.write_text(ring_text("k1"))
    make_worker(make_me(node="w1@here"))
    make_worker(replace(make_me(node="w2@there"), machine="there"))
    with pytest.raises(CommandError, match=r"Workers run on several machines\. Run manage\.py rotate_keys --prepare"):
        call_command("rotate_keys")
    job = rotated()
    assert job.state == JobState.FAILED
    assert job.detail.startswith("Workers run on several machines. Run manage.py rotate_keys --prepare")
    assert json.loads(settings.KEYRING_FILE.read_text()) == json.loads(ring_text("k1"))
    prepared = keyring_file.prepare_key(settings.KEYRING_FILE)
    assert rotated().state == JobState.SUCCEEDED
    assert json.loads(settings.KEYRING_FILE.read_text())["current"] == prepared


def rotated() -> BackgroundJob:
    job = requesting.request_scheduled(JobKind.ROTATION)
    assert job is not None
    running.run(str(job.uid))
    return newest(JobKind.ROTATION)


def signed_in(user: Any) -> str:
    browser = Client()
    browser.force_login(user)
    return str(browser.session.session_key)


async def test_an_upload_that_no_one_waits_for_any_more_is_cancelled() -> None:
    given_up, cleaned = threading.Event(), list[bool]()

    async def sending() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    async def quick() -> None:
        """Is over before anybody looks."""

    given_up.set()
    with pytest.raises(asyncio.CancelledError):
        await tasks._until(given_up, sending())
    await tasks._until(given_up, quick())
    assert cleaned == [True]
