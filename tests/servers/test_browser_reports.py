"""Reports of browsers about the content security policy: stored by cause, bounded, shown to administrators alone."""

import json
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from servers.audit import writer as writing
from servers.browser_reports import receiving
from servers.enums import AuditAction
from servers.models import AuditEvent, BrowserReport
from tests.servers.conftest import admin, person  # noqa: F401  fixtures

pytestmark = pytest.mark.django_db(transaction=True)
REPORT = {
    "document-uri": "http://127.0.0.1:8000/servers/orders/tools/?tool=echo&q=hunter2#part",
    "violated-directive": "script-src-elem",
    "effective-directive": "script-src-elem",
    "blocked-uri": "https://user:hunter2@evil.example/x.js?token=hunter2",
    "source-file": "http://127.0.0.1:8000/static/js/app.js",
    "line-number": 12,
}


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    cache.clear()
    yield
    writing.reset()


def send(body: Any = None, client: Client | None = None, **changes: Any) -> int:
    content = (
        body if isinstance(body, bytes) else json.dumps({"csp-report": REPORT | changes} if body is None else body)
    )
    answer = (client or Client()).post("/browser-reports/", content, content_type="application/csp-report")
    return int(answer.status_code)


def test_a_report_is_stored_once_a_cause_and_without_what_may_be_secret() -> None:
    assert send() == send() == 204
    row = BrowserReport.objects.get()
    assert (row.directive, row.count) == ("script-src-elem", 2)
    assert row.blocked == "https://evil.example/x.js"
    assert row.page == "http://127.0.0.1:8000/servers/orders/tools/"
    assert row.source == "http://127.0.0.1:8000/static/js/app.js:12"
    send(**{"blocked-uri": "inline"})
    assert BrowserReport.objects.filter(blocked="inline").exists()


@pytest.mark.parametrize(
    "body",
    [
        *([], 7, {}, {"csp-report": []}, {"csp-report": {}}, {"csp-report": {"blocked-uri": "x"}}),
        *(b"{", b"\xff\xfe", b'{"csp-report":' + b"[" * 8_000),
    ],
)
def test_what_is_no_report_leaves_nothing(body: Any) -> None:
    assert send(body) == 204
    assert not BrowserReport.objects.exists()


def test_a_report_of_odd_or_huge_values_is_cut_or_dropped() -> None:
    assert send(**{"blocked-uri": ["no text"], "document-uri": "http://[", "line-number": "x"}) == 204
    assert send(**{"blocked-uri": "x" * 5_000}) == 204
    assert max(len(row.blocked) for row in BrowserReport.objects.all()) == 300
    assert send(**{"blocked-uri": "x" * 9_000}) == 204
    assert BrowserReport.objects.count() == 2


def test_one_address_sends_only_so_many() -> None:
    most = receiving.MOST_REPORTS
    for number in range(most + 5):
        send(**{"blocked-uri": f"https://evil.example/{number % 3}"})
    assert sum(BrowserReport.objects.values_list("count", flat=True)) == most


def test_only_so_many_causes_are_kept_and_old_ones_make_room() -> None:
    now, most = timezone.now(), receiving.MOST_CAUSES
    BrowserReport.objects.bulk_create(
        BrowserReport(digest=str(n), directive="img-src", blocked="b", page="p", browser="b", first_at=now, last_at=now)
        for n in range(most)
    )
    assert not receiving.store(REPORT, "")
    BrowserReport.objects.filter(digest="0").update(last_at=now - receiving.KEPT - timedelta(days=1))
    assert receiving.store(REPORT, "")
    assert BrowserReport.objects.count() == most


def test_administrators_see_and_clear_them_and_nothing_in_them_runs(client: Client, admin: Any) -> None:  # noqa: F811
    send(**{"blocked-uri": "<img src=x onerror=alert(1)>"})
    client.force_login(admin)
    page = client.get("/browser-reports/list/").content.decode()
    assert "<img src=x" not in page
    assert "<img src=x" in unescape(page)
    assert "Browser reports <b" in client.get("/settings/").content.decode()
    for _ in range(2):
        client.post("/browser-reports/clear/")
    event = AuditEvent.objects.get(action=AuditAction.REPORTS_CLEAR)
    assert (event.actor_name, json.loads(event.body)["details"]) == ("ada", {"count": 1})
    assert "No reports" in client.get("/browser-reports/list/").content.decode()
    client.force_login(person("vera", "view_server"))
    assert client.get("/browser-reports/list/").status_code == 403
    assert client.post("/browser-reports/clear/").status_code == 403
