"""The storage page shows what takes how much, keeps limits, and starts runs and dry runs."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit import writer as writing
from servers.enums import AuditAction
from servers.jobs import running
from servers.models import AuditEvent, BackgroundJob
from sessions.enums import StoredKind
from sessions.models import Call, RetentionLimit, StorageHour
from sessions.retention import ledger, limits
from sessions.retention.limits import Limit
from sessions.retention.storage import storage
from sessions.tasks import start_retention  # noqa: F401  registers what the jobs do
from tests.servers.conftest import admin, on_postgres  # noqa: F401  fixtures
from tests.sessions.host.make import make_session
from tests.sessions.retention.rows import call_at, days_ago

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def ada(client: Client, admin: Any) -> Client:  # noqa: F811  the fixture
    client.force_login(admin)
    return client


def save(ada: Client, **given: str) -> Any:
    """From a page that was opened just now."""
    return ada.post("/storage/", given | {"seen": limits.mark()}, follow=True)


def words(response: Any, status: int = 200) -> str:
    assert response.status_code == status
    text = re.sub(r"<(script|style|svg|template)\b.*?</\1>", " ", response.content.decode(), flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", text).replace("&#x27;", "'").split())


def entry(kind: StoredKind, days: float, size: int, first: int) -> StorageHour:
    at = days_ago(days).replace(minute=0, second=0, microsecond=0)
    return StorageHour.objects.create(kind=kind, hour=at, first=first, last=first, until=at, rows=1, bytes=size)


def test_limits_are_saved_in_days_and_megabytes_with_an_event(ada: Client) -> None:
    response = save(ada, calls_days="30", payloads_mb="2")
    assert "The next run applies it" in words(response)
    now = limits.limits()
    assert now[StoredKind.CALLS] == Limit(days=30)
    assert now[StoredKind.PAYLOADS] == Limit(bytes=2_000_000)
    assert now[StoredKind.EVENTS] == Limit()
    changes = json.loads(AuditEvent.objects.get(action=AuditAction.RETENTION_CHANGE).body)["details"]["changes"]
    assert changes["Calls"] == {"before": "everything", "after": "30 days"}
    assert "Nothing changed" in words(save(ada, calls_days="30", payloads_mb="2"))
    save(ada)
    assert limits.limits()[StoredKind.CALLS] == Limit()


def test_a_page_that_shows_old_limits_restores_none_of_them(ada: Client) -> None:
    save(ada, calls_days="30")
    (seen,) = re.findall(r'name="seen" value="([^"]+)"', ada.get("/storage/").content.decode())
    save(ada, calls_days="365")
    stale = {"calls_days": "30", "logs_days": "7", "seen": seen}
    answer = ada.post("/storage/", stale)
    assert "The limits changed after you opened this page" in words(answer, 409)
    assert 'value="365"' in answer.content.decode()
    assert limits.limits()[StoredKind.CALLS] == Limit(days=365)
    assert limits.limits()[StoredKind.LOGS] == Limit()
    assert f'name="seen" value="{limits.mark()}"' in answer.content.decode()
    invalid = ada.post("/storage/", stale | {"logs_days": "0"})
    assert f'name="seen" value="{seen}"' in invalid.content.decode(), "what was entered is as old as before"


@pytest.mark.parametrize(
    "data", [{"calls_days": "0"}, {"calls_mb": "x"}, {"calls_days": "5", "payloads_days": "6"}, {"logs_days": "99999"}]
)
def test_what_cannot_be_a_limit_is_refused_and_nothing_changes(ada: Client, data: dict[str, str]) -> None:
    assert "Correct the marked fields" in words(ada.post("/storage/", data), 422)
    assert not RetentionLimit.objects.exists()


def test_a_dry_run_shows_what_would_go_and_a_run_removes_it(ada: Client) -> None:
    for days in (40, 2):
        call_at(make_session(f"tools-{days}"), days_ago(days))
    save(ada, calls_days="30")
    assert "Retention dry run: queued" in words(ada.post("/storage/try/", follow=True))
    running.run(str(BackgroundJob.objects.latest("pk").uid))
    assert "Calls: 1 row," in words(ada.get("/storage/"))
    assert Call.objects.count() == 2
    ada.post("/storage/run/")
    running.run(str(BackgroundJob.objects.latest("pk").uid))
    page = words(ada.get("/storage/"))
    assert "Removed calls: 1." in page
    assert "Calls: 1 row," not in page, "a dry run of before says nothing any more"
    assert Call.objects.count() == 1


def test_growth_and_the_day_on_which_a_limit_is_reached_come_from_the_last_seven_days() -> None:
    for day in range(1, 11):
        entry(StoredKind.CALLS, day, 7_000_000 if day <= 7 else 100, 100 - day)
    RetentionLimit.objects.create(kind=StoredKind.CALLS, bytes=119_000_300)
    (calls,) = [row for row in storage().rows if row.kind == StoredKind.CALLS]
    assert 6_000_000 <= (calls.a_day or 0) <= 7_000_000
    assert calls.full_in in (10, 11)
    assert not calls.settled


def test_a_kind_at_its_limit_grows_no_more_so_the_disk_does_not_fill_up() -> None:
    entry(StoredKind.CALLS, 2, 10**9, 1)
    assert storage().full_in is not None
    RetentionLimit.objects.create(kind=StoredKind.CALLS, bytes=10**9)
    assert storage().full_in is None
    assert [row.settled for row in storage().rows if row.kind == StoredKind.CALLS] == [True]


@pytest.mark.parametrize("limit", [{"bytes": 10**8}, {"days": 3}])
def test_events_that_are_kept_beyond_their_limit_count_as_growing(ada: Client, limit: dict[str, int]) -> None:
    """By a schedule or sink that fails, or an open alarm."""
    for day in range(1, 8):
        entry(StoredKind.EVENTS, day, 10**9, 100 - day)
    RetentionLimit.objects.create(kind=StoredKind.EVENTS, **limit)
    page = words(ada.get("/storage/"))
    assert "Over its limit" in page
    assert "Removing oldest rows" not in page
    assert storage().full_in is not None


def test_a_disk_that_is_soon_full_is_said_loudly(ada: Client) -> None:
    entry(StoredKind.CALLS, 1, 10**15, 1)
    page = words(ada.get("/storage/"))
    assert "The disk will be full in less than a day." in page
    assert "Within a day" in page
    assert "In 0 days" not in page


def test_the_page_reads_the_ledger_and_no_rows(ada: Client, django_assert_max_num_queries: Any) -> None:
    session = make_session("tools")
    for _ in range(30):
        call_at(session, days_ago(1))
    ledger.measure_all()
    with django_assert_max_num_queries(40):
        ada.get("/storage/")


@pytest.mark.usefixtures("on_postgres")
def test_on_postgres_the_page_says_that_the_disk_is_unknown() -> None:
    now = storage(timezone.now() + timedelta(days=1))
    assert now.disk.engine == "PostgreSQL"
    assert now.disk.database > 0
    assert now.disk.free is None
