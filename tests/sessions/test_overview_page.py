"""The overview: what needs attention first, then calls, errors and latency by server, each a click from its calls."""

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.audit.proof import alarms
from servers.audit.record import SYSTEM
from servers.enums import AlarmKind, SignsInAs, SinkKind
from servers.models import Server, Sink
from sessions.enums import CallState, Desired, SessionState
from sessions.models import McpSession
from sessions.overview import activity
from sessions.statistics import counting, reading
from tests.servers.conftest import person
from tests.sessions.host.make import make_session, make_worker
from tests.sessions.statistics.conftest import make_calls

pytestmark = pytest.mark.django_db(transaction=True)


def client_of(name: str, *permissions: str) -> Client:
    client = Client()
    client.force_login(person(name, *permissions))
    return client


@pytest.fixture
def ada() -> Client:
    return client_of("ada", "view_server", "view_payload", "change_server", "call_tool")


def page(client: Client, query: str = "") -> str:
    answer = client.get(f"/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def charts(text: str) -> dict[str, Any]:
    found = re.findall(r'data-name="(\w+)" data-chart="([^"]+)"', text)
    return {name: json.loads(unescape(data)) for name, data in found}


def sums(chart: dict[str, Any]) -> dict[str, int]:
    return {one["label"]: sum(one["counts"]) for one in chart["series"] if any(one["counts"])}


def attention(text: str) -> str:
    return text[text.index('id="overview-attention"') : text.index('id="overview-numbers"')]


# --- attention -------------------------------------------------------------------------------------------------------
def test_what_needs_attention_is_first_and_leads_to_the_fix(ada: Client) -> None:
    failing, signs_out, loses = make_session("failing"), make_session("signs-out"), make_session("loses")
    make_session("own", signs_in_as=SignsInAs.PERSONAL, desired=Desired.CLOSED)
    worker = make_worker()
    fault = {"fault_at": timezone.now(), "owner": worker}
    McpSession.objects.filter(pk=failing.pk).update(fault="process_exited", fault_detail="exit code 3", **fault)
    McpSession.objects.filter(pk=signs_out.pk).update(fault="key_needed", fault_detail="X-API-Key", **fault)
    McpSession.objects.filter(pk=loses.pk).update(state=SessionState.READY, owner=worker)
    make_calls(loses, 12, state=CallState.FAILED)
    make_calls(loses, 1, state=CallState.OUTCOME_UNKNOWN)
    found = attention(page(ada))
    assert "The process ended: exit code 3" in found
    assert '<a class="btn btn-d sm" href="/servers/failing/info/">' in found
    assert 'href="/servers/signs-out/settings/#credentials"' in found
    assert 'href="/servers/own/identity/"' in found
    assert "100.0% of 13 calls failed" in found
    links = [unescape(link) for link in re.findall(r'href="(/explorer/\?q=[^"]+)"', found)]
    for link, count in zip(links, (13, 1), strict=True):
        assert len(re.findall(r'data-sel="calls\.', ada.get(link).content.decode())) == count, link
    assert "1 call with an unknown outcome" in found
    assert "without a worker" not in found


def test_more_failing_servers_than_fit_are_a_number_that_leads_to_their_list(ada: Client) -> None:
    for number in range(11):
        session = make_session(f"bad{number}")
        McpSession.objects.filter(pk=session.pk).update(fault="timeout", fault_at=timezone.now())
    found = attention(page(ada))
    assert found.count("Diagnose") == 8
    assert re.search(r'href="/servers/\?state=failing">3 more failing servers<', found)
    assert "11 sessions without a worker" in found
    assert "No worker is running" in found


def test_an_archived_or_disabled_server_and_an_installation_in_order_need_nothing(ada: Client) -> None:
    for number, fields in enumerate(({"enabled": False}, {"archived_at": timezone.now()})):
        session = make_session(f"old{number}", **fields)
        McpSession.objects.filter(pk=session.pk).update(fault="timeout", fault_at=timezone.now())
    fine = make_session("fine")
    McpSession.objects.filter(pk=fine.pk).update(state=SessionState.READY, owner=make_worker())
    assert "Needs attention" not in page(ada)


def test_a_failing_server_that_someone_paused_needs_nothing(ada: Client) -> None:
    down, other = make_session("down"), make_session("other")
    McpSession.objects.update(fault="connection_refused", fault_at=timezone.now(), owner=make_worker())
    assert "/servers/down/info/" in attention(page(ada))
    McpSession.objects.filter(pk=down.pk).update(paused=True, owner=None)
    found = attention(page(ada))
    assert "/servers/down/" not in found
    assert "/servers/other/info/" in found
    McpSession.objects.filter(pk=other.pk).update(paused=True, owner=None)
    assert "Needs attention" not in page(ada)


def test_a_call_that_began_before_the_range_is_still_running_now(ada: Client) -> None:
    session = make_session("slow")
    make_calls(session, 1, timezone.now() - timedelta(hours=2), state=CallState.SENT)
    make_calls(session, 1, timezone.now() - timedelta(hours=2), state=CallState.SUCCEEDED)
    assert "1 running now" in page(ada, "?last=1h")


def test_a_range_without_calls_and_no_worker_are_said_as_they_are(ada: Client) -> None:
    session = make_session("one", enabled=False)
    make_calls(session, 2, timezone.now() - timedelta(hours=26))
    text = page(ada)
    assert text.count("no calls in this range") == 2
    assert "none running" in text
    assert "sessions waiting" not in text


# --- charts ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("counted", [False, True])
def test_charts_show_calls_errors_and_latency_of_each_server(ada: Client, counted: bool) -> None:
    one, two = make_session("one"), make_session("two")
    make_calls(one, 4, milliseconds=30)
    make_calls(two, 2, milliseconds=900)
    make_calls(two, 1, state=CallState.FAILED, milliseconds=900)
    make_calls(two, 7, timezone.now() - timedelta(hours=26))
    make_calls(two, 5, method="completion/complete")
    if counted:
        counting.count_all()
    text = page(ada)
    drawn = charts(text)
    assert sums(drawn["calls"]) == {"One": 4, "Two": 3}
    assert sums(drawn["errors"]) == {"Two": 1}
    slowest = {line["label"]: max(value or 0 for value in line["values"]) for line in drawn["latency"]["lines"]}
    assert slowest["One"] <= 30 < 700 < slowest["Two"]
    assert re.search(r"Calls, last 24 hours</div>\s*<div[^>]*><a[^>]*>7</a>", text)
    assert re.search(r"14\.3% of calls", text)


def test_a_bar_covers_what_its_place_in_the_table_says_and_leads_there(ada: Client) -> None:
    session = make_session("one")
    make_calls(session, 2, timezone.now() - timedelta(hours=5))
    make_calls(session, 1)
    text = page(ada)
    table = text[text.index("chart-table") : text.index("data-server-rows")]
    links = [unescape(link) for link in re.findall(r'href="(/explorer/\?q=since[^"]+)"', table)]
    assert [len(re.findall(r'data-sel="calls\.', ada.get(link).content.decode())) for link in links] == [2, 1]
    on_phones = re.findall(r"only-mb[^>]*>([^<]+)</td>", table)
    assert [words.partition("p95 ")[0] for words in on_phones] == ["0 failed · ", "0 failed · "]
    assert charts(page(ada, "?last=1h"))["calls"]["step"] == 60
    assert sums(charts(page(ada, "?last=1h"))["calls"]) == {"One": 1}


def test_the_link_of_the_first_bar_leads_to_the_calls_that_it_counts(
    ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=24)
    monkeypatch.setattr(timezone, "now", lambda: bar + timedelta(hours=24, minutes=20))
    session = make_session("one")
    for minutes in (10, 25):
        make_calls(session, 1, bar + timedelta(minutes=minutes))
    text = page(ada)
    assert sums(charts(text)["calls"]) == {"One": 1}
    table = text[text.index("chart-table") : text.index("data-server-rows")]
    (link,) = [unescape(link) for link in re.findall(r'href="(/explorer/\?q=since[^"]+in%3Acalls)"', table)]
    assert len(re.findall(r'data-sel="calls\.', ada.get(link).content.decode())) == 1


def test_servers_beyond_the_colours_are_together_and_the_worst_has_one_of_its_own(ada: Client) -> None:
    sessions = [make_session(f"s{number}") for number in range(9)]
    for number, session in enumerate(sessions):
        make_calls(session, 10 - number)
    make_calls(sessions[8], 1, state=CallState.FAILED)
    drawn = sums(charts(page(ada))["calls"])
    assert len(drawn) == activity.DRAWN + 1
    assert drawn["S8"] == 3, "it has the most errors, and few calls"
    assert sum(drawn.values()) == sum(range(2, 11)) + 1
    deleted = sums(charts(page(ada))["calls"])["Other servers"]
    counting.count_all()
    Server.objects.filter(slug="s0").delete()
    assert sums(charts(page(ada))["calls"])["Other servers"] >= 10 + deleted - 5, (
        "calls of deleted servers stay counted"
    )


def test_calls_of_other_peoples_own_sessions_are_in_no_chart() -> None:
    session = make_session("one")
    olga = person("olga", "view_server")
    make_calls(session, 3, personal=True, user=olga)
    make_calls(session, 1)
    counting.count_all()
    for name, permissions, count in (("vera", (), 1), ("rita", ("view_payload",), 4)):
        drawn = charts(page(client_of(name, "view_server", *permissions)))
        assert sums(drawn["calls"]) == {"One": count}, name


def test_without_permission_to_see_servers_nothing_is_counted() -> None:
    make_calls(make_session("one"), 3)
    counting.count_all()
    text = page(client_of("nil", "change_server"))
    assert not charts(text)
    assert "one" not in re.findall(r'href="/servers/([^/"]+)/tools/"', text)
    assert "Calls, last 24 hours" not in text


def test_a_name_cannot_leave_its_attribute(ada: Client) -> None:
    session = make_session("one")
    name = '"><script>alert(1)</script>'
    Server.objects.filter(pk=session.server.pk).update(name=name)
    make_calls(session, 1)
    text = page(ada)
    assert "<script>alert" not in text
    assert sums(charts(text)["calls"]) == {name: 1}


@pytest.mark.parametrize("query", ["", "?last=1h"])
def test_one_server_and_a_hundred_cost_the_same_number_of_queries(ada: Client, query: str) -> None:
    def cost() -> int:
        reading._read.cache_clear()
        with CaptureQueriesContext(connection) as queries:
            page(ada, query)
        return len(queries)

    for number in range(activity.LISTED):
        make_calls(make_session(f"s{number}"), 1)
    page(ada, query)
    few = cost()
    for number in range(activity.LISTED, 100):
        make_calls(make_session(f"s{number}"), 1)
    counting.count_all()
    assert cost() <= few <= 30


# --- banners ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root"))
    return client


def statements(client: Client, *tables: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        page(client, "inbox/")
    return sum(any(table in query["sql"] for table in tables) for query in queries.captured_queries)


def test_alarms_and_forwarding_that_is_stalled_cost_a_page_one_statement_while_there_is_neither(root: Client) -> None:
    page(root, "inbox/")
    assert statements(root, "auditalarm", "servers_sink") == 1
    assert statements(client_of("vera", "view_server"), "auditalarm", "servers_sink") == 0


def test_each_of_them_is_loud_on_every_page_by_itself(root: Client, settings: Any) -> None:
    page(root)
    alarm = alarms.sound(AlarmKind.BEHIND, 3, "The log ends at event 2.")
    assert alarm is not None
    text = page(root, "inbox/")
    assert "The log ends at event 2." in text
    assert "has stalled" not in text
    alarms.acknowledge(alarm, SYSTEM, "restored")
    Sink.objects.create(name="Loki", kind=SinkKind.HTTP, address="https://loki.example/", created_name="root")
    assert "has stalled" not in page(root, "inbox/"), "what waits is young"
    settings.FORWARDING_ALERT_SECONDS = 0
    text = page(root, "inbox/")
    assert "Forwarding to Loki has stalled" in text
    assert "The log ends at event 2." not in text
