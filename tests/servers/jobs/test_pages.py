"""The audit log's verdict and the jobs page show the right content to the right people and refuse the rest."""

import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.enums import AuditAction, JobKind, JobState
from servers.jobs import lifecycle, requesting, running
from servers.models import AuditEvent, BackgroundJob
from tests.servers.conftest import person
from tests.servers.jobs.conftest import chain_of, ring_text

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(client: Client, admin: Any) -> Client:
    client.force_login(admin)
    return client


def signed_in(name: str, *permissions: str) -> Client:
    client = Client()
    client.force_login(person(name, *permissions))
    return client


def words(response: Any, status: int = 200) -> str:
    """The page's text as a person reads it."""
    assert response.status_code == status
    text = re.sub(r"<(script|style|svg|template)\b.*?</\1>", " ", response.content.decode(), flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", text).replace("&#x27;", "'").split())


def markup(response: Any) -> str:
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


# --- the verdict ----------------------------------------------------------------------------------------------------------
def test_the_log_says_that_it_was_never_verified_then_that_it_waits_then_the_verdict(ada: Client) -> None:
    chain_of(20)
    assert "Not verified yet" in words(ada.get("/explorer/"))
    ada.post("/audit/verify/")
    assert "Waiting for a worker" in words(ada.get("/explorer/"))
    running.run(str(BackgroundJob.objects.get().uid))
    job = BackgroundJob.objects.get()
    answer = ada.get("/explorer/")
    page = words(answer)
    assert f"All {job.result['checked']} events verified" in page
    assert "Not verified" not in page
    assert 'title="All events are as recorded. Payloads and calls match' in markup(answer)  # there is no checkpoint yet


def test_a_verification_that_runs_shows_how_far_it_is_and_refuses_a_second_one(ada: Client) -> None:
    ada.post("/audit/verify/")
    job = lifecycle.claim(str(BackgroundJob.objects.get().uid))
    assert job is not None
    lifecycle.heartbeat(job, done=4_000, total=12_345)
    page = markup(ada.get("/explorer/"))
    assert 'aria-label="Audit log verification progress" max="100" value="32"' in page
    assert "4,000 of 12,345" in page
    assert re.search(r"<button[^>]* disabled[^>]*>.{0,600}Verify the whole log", page)
    answer = words(ada.post("/audit/verify/", follow=True))
    assert "Audit log verification is already running, started by ada." in answer
    assert BackgroundJob.objects.count() == 1


@pytest.mark.usefixtures("tamperable")
def test_a_broken_chain_is_shown_with_its_first_bad_event_to_those_who_may_verify(ada: Client) -> None:
    chain_of(20)
    AuditEvent.objects.filter(seq=7).delete()
    ada.post("/audit/verify/")
    running.run(str(BackgroundJob.objects.get().uid))
    for client in (ada, signed_in("vic", "view_auditevent", "verify_chain")):
        page = words(client.get("/explorer/"))
        assert "Broken at event 7" in page
        assert "Event 7 is missing." in page
    assert "Broken" not in words(signed_in("rita", "view_auditevent").get("/explorer/"))


def test_a_verification_that_did_not_end_is_no_verdict(ada: Client, monkeypatch: Any) -> None:
    def breaks(progress: running.JobProgress) -> lifecycle.JobOutcome:
        raise RuntimeError

    monkeypatch.setitem(running._work, JobKind.VERIFICATION, breaks)
    ada.post("/audit/verify/")
    running.run(str(BackgroundJob.objects.get().uid))
    page = words(ada.get("/explorer/"))
    assert "Verification failed" in page
    assert "Something went wrong. See the worker's log for the reason." in page


def test_a_verification_that_is_started_in_the_explorer_leaves_its_query_as_it_is(ada: Client) -> None:
    address = "/explorer/?q=last%3A7d+in%3Aevents&cols=time%2Cwhat"
    back = re.search(r'action="/audit/verify/".*?name="back" value="([^"]*)"', markup(ada.get(address)))
    assert back is not None
    assert ada.post("/audit/verify/", {"back": unescape(back[1])})["Location"] == address
    assert ada.post("/audit/verify/", {"back": "proof"})["Location"] == "/audit/proof/"
    for elsewhere in ("//evil.example/", "/users/"):
        assert ada.post("/audit/verify/", {"back": elsewhere})["Location"] == "/explorer/"


def test_without_its_permission_no_one_verifies_and_the_try_is_in_the_log() -> None:
    client = signed_in("rita", "view_auditevent")
    page = markup(client.get("/explorer/"))
    assert "Verify the whole log" not in page
    assert "moved-parts.js" not in page
    words(client.post("/audit/verify/"), 403)
    words(client.get("/audit/verify/"), 405)
    event = AuditEvent.objects.get(action=AuditAction.PERMISSION_DENY)
    assert (event.actor_name, event.subject) == ("rita", "Audit log verification")
    assert not BackgroundJob.objects.exists()


def test_while_the_broker_is_away_the_page_says_so_and_the_job_stays_queued(ada: Client) -> None:
    page = words(ada.post("/audit/verify/", follow=True))
    assert page.count(requesting.BROKER_AWAY) == 2  # in the message and beside the button
    assert BackgroundJob.objects.get().state == JobState.QUEUED
    requesting.recover()
    assert BackgroundJob.objects.get().state == JobState.QUEUED


# --- the page of jobs ----------------------------------------------------------------------------------------------------
def test_no_one_without_permission_sees_the_page_or_its_link() -> None:
    client = signed_in("vera", "view_server", "view_auditevent", "verify_chain")
    words(client.get("/jobs/"), 403)
    assert "/jobs/" not in markup(client.get("/explorer/"))
    event = AuditEvent.objects.get(action=AuditAction.PERMISSION_DENY)
    assert (event.actor_name, event.outcome) == ("vera", "denied")


def test_who_may_see_jobs_sees_them_newest_first_and_no_button_that_is_not_theirs() -> None:
    client = signed_in("joe", "view_backgroundjob")
    assert "No jobs yet" in words(client.get("/jobs/"))
    now = timezone.now()
    over = {"state": JobState.SUCCEEDED, "started_at": now - timedelta(seconds=75), "finished_at": now}
    BackgroundJob.objects.create(kind=JobKind.HOUSEKEEPING, detail="Nothing to clean up.", **over)
    BackgroundJob.objects.create(kind=JobKind.VERIFICATION, requested_name="<b>ada</b>", detail="All well.", **over)
    answer = client.get("/jobs/")
    page = words(answer).partition("Progress and result")[2]
    assert page.index("Audit log verification") < page.index("Housekeeping")
    assert all(part in page for part in ("Schedule", "Succeeded", "Nothing to clean up.", "1 min 15 s"))
    assert "&lt;b&gt;ada" in markup(answer)
    assert "Rotate keys" not in page
    words(client.get("/jobs/rotate-keys/"), 403)
    words(client.post("/jobs/rotate-keys/"), 403)
    assert not BackgroundJob.objects.filter(kind=JobKind.ROTATION).exists()


def test_the_page_takes_the_same_queries_for_one_job_and_for_fifty(
    ada: Client, django_assert_max_num_queries: Any
) -> None:
    over = {"kind": JobKind.VERIFICATION, "state": JobState.SUCCEEDED, "finished_at": timezone.now()}
    BackgroundJob.objects.bulk_create([BackgroundJob(**over) for _ in range(50)])
    with django_assert_max_num_queries(9):
        ada.get("/jobs/")


# --- rotation ------------------------------------------------------------------------------------------------------------
def test_a_rotation_is_asked_for_on_a_page_of_its_own_and_refused_while_one_runs(
    ada: Client, keyring_file: Path
) -> None:
    assert "Rotate keys?" in words(ada.get("/jobs/rotate-keys/"))
    assert not BackgroundJob.objects.exists()
    page = words(ada.post("/jobs/rotate-keys/", follow=True))
    assert "Key rotation" in page
    page = markup(ada.get("/jobs/"))
    assert re.search(r"<button[^>]* disabled aria-describedby=\"rotation-waits\"", page)
    assert "Key rotation is queued" in page
    assert "Key rotation is already queued, started by ada." in words(ada.post("/jobs/rotate-keys/", follow=True))
    assert BackgroundJob.objects.count() == 1


@pytest.mark.parametrize("name", ["KEYRING", "KEYRING_COMMAND"])
def test_a_ring_that_is_kept_elsewhere_is_changed_there(ada: Client, settings: Any, name: str, tmp_path: Path) -> None:
    path = tmp_path / "ring"
    path.write_text(ring_text("k1", "k2"))
    setattr(settings, name, f"cat {path}" if name.endswith("COMMAND") else path.read_text())
    page = words(ada.get("/jobs/rotate-keys/"))
    assert "Encrypt secrets with the current key?" in page
    assert f"MCPADMIN_{name}" in page
    assert "Re-encrypt" in page
    assert "Rotate keys?" not in page
