"""Chart and facets say the same from roll-ups as row by row, and use roll-ups wherever these can answer."""

import json
from collections import Counter
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit.record import ServerRef
from servers.enums import AuditAction
from servers.models import AuditEvent, Server
from sessions.enums import CallState
from sessions.explorer import search, statistics
from sessions.models import Call
from sessions.statistics import counting
from tests.servers.conftest import person
from tests.sessions.explorer.rows import ended_call, event, query
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def auditor(db: None) -> Any:
    rhea = person("rhea", "view_server", "view_payload", "view_auditevent")
    bob = person("bob", "view_server")
    github, files = make_session("github"), make_session("files")
    for hours in reversed(range(30)):  # ids rise with time
        ended_call(github, "search", ago=timedelta(hours=hours + 0.5), user=rhea)
        if hours % 3 == 0:
            ago = timedelta(hours=hours + 0.5)
            read = ended_call(files, "read", ago=ago, state=CallState.TOOL_ERROR, user=bob)
            Call.objects.filter(pk=read.pk).update(way="agent")
            ended_call(files, "name", ago=ago, method="completion/complete")
    for number in range(4):
        event(AuditAction.USER_CHANGE, f"n{number}")
    return rhea


QUERIES = [
    "last:24h",
    "last:24h in:calls",
    "last:24h in:events",
    "last:24h in:calls server:github",
    "last:24h in:calls server:GITHUB tool:search",
    "last:24h in:calls tool:read",
    "last:24h in:calls user:bob",
    "last:24h in:calls outcome:error",
    "last:24h in:calls status:tool_error,failed",
    "last:24h in:calls way:agent",
    "last:24h in:calls kind:completion",
    "last:24h in:calls own:show",
    "last:24h in:calls own:only",
    "last:24h own:show",
    "last:24h own:only",
    "last:24h in:calls own:only kind:tool",
    "last:24h in:calls user:bob server:files",
    "last:24h in:calls -tool:read",
    "last:24h in:calls tool:sea*",
    "in:calls",
    "",
]


def by_rows(user: Any, text: str) -> Counter[str]:
    return Counter(row.outcome for row in search.page(user, query(text), limit=500).rows)


def test_the_chart_counts_what_the_list_shows_before_and_after_the_counting(
    auditor: Any, subtests: pytest.Subtests
) -> None:
    for moment in ("before", "after"):
        for text in QUERIES:
            with subtests.test(moment, text=text):
                found = statistics.histogram(auditor, query(text))
                assert {name: sum(counts) for name, counts in found.series.items()} == by_rows(auditor, text)
                assert not found.partial
        counting.count_all()


def test_calls_that_are_not_counted_yet_are_no_older_rows_left_out(
    auditor: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.count_all()
    monkeypatch.setattr("sessions.statistics.reading.TAIL", 3)
    late = make_session("late")
    for _ in range(4):
        ended_call(late, "search", user=auditor)
    found = statistics.histogram(auditor, query("last:24h in:calls"))
    assert (found.behind, found.partial) == (True, False)
    shown = {facet.field: facet for facet in statistics.facets(auditor, query("last:24h in:calls"))}
    assert {(facet.behind, facet.partial) for facet in shown.values()} == {(True, False)}
    client.force_login(auditor)
    for path, words in (("histogram", "Newest calls not counted yet"), ("facets", "newest calls are not counted yet")):
        page = client.get(f"/explorer/{path}/?q=last:24h+in:calls").content.decode()
        assert (words in page, "ewest rows" in page) == (True, False)


def test_the_chart_of_a_server_counts_the_calls_of_a_deleted_one_of_this_name(auditor: Any) -> None:
    server = Server.objects.get(slug="github")
    event(AuditAction.SERVER_DELETE, server.name, server=ServerRef.of(server))
    counting.count_all()
    Call.objects.filter(server=server).update(server=None)
    server.delete()
    ended_call(make_session("github"), "search", user=auditor)
    text = f"last:24h in:calls server:{server.name}"
    for _ in range(2):
        found = statistics.histogram(auditor, query(text))
        assert {name: sum(counts) for name, counts in found.series.items()} == by_rows(auditor, text)
        counting.count_all()


@pytest.mark.parametrize("most", [statistics.ROLLUPS_READ, 1])
def test_facets_count_what_the_list_shows_before_and_after_the_counting(
    auditor: Any, most: int, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr(statistics, "ROLLUPS_READ", most)
    for moment in ("before", "after"):
        for text in QUERIES:
            with subtests.test(moment, text=text):
                rows = search.page(auditor, query(text), limit=500).rows
                expected = {
                    "outcome": Counter(row.outcome for row in rows),
                    "server": Counter(row.server_name for row in rows if row.server_name),
                    "user": Counter(row.who for row in rows if row.who),
                    "tool": Counter(row.target for row in rows if row.stream == "calls"),
                }
                facets = {facet.field: facet for facet in statistics.facets(auditor, query(text))}
                for field, counts in expected.items():
                    assert {value: count for value, _, count in facets[field].values} == counts, field
        counting.count_all()


@pytest.mark.parametrize("most", [statistics.ROLLUPS_READ, 1])
def test_a_facet_offers_the_present_name_of_a_renamed_server_which_finds_its_rows(
    auditor: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "ROLLUPS_READ", most)
    before = {facet.field: facet for facet in statistics.facets(auditor, query("in:calls,events"))}["server"].values
    counting.count_all()
    server = Server.objects.get(slug="github")
    count = next(count for value, _, count in before if value == server.name)
    Server.objects.filter(pk=server.pk).update(name="Renamed")
    after = {facet.field: facet for facet in statistics.facets(auditor, query("in:calls,events"))}["server"].values
    assert ("Renamed", "Renamed", count) in after
    assert server.name not in {value for value, _, _ in after}
    assert len(search.page(auditor, query("in:calls,events server:Renamed"), limit=500).rows) == count


@pytest.mark.parametrize("after", [True, False], ids=["before its beginning", "at its end"])
def test_events_outside_of_the_range_are_not_counted_although_their_bar_reaches_beyond_it(
    auditor: Any, after: bool
) -> None:
    event(AuditAction.USER_CHANGE, "outside")
    day, at = timedelta(hours=24), AuditEvent.objects.latest("seq").at
    since, until = (at + timedelta(milliseconds=1), at + day) if after else (at - day, at)
    asked = query(f"in:calls,events since:{since.isoformat()} until:{until.isoformat()}")
    counting.count_all()
    found = statistics.histogram(auditor, asked)
    rows = search.page(auditor, asked, limit=500).rows
    assert found.step_seconds == 1_800, "by roll-ups"
    assert "outside" not in {row.target for row in rows}
    assert sum(map(sum, found.series.values())) == len(rows)
    assert found.start <= since


def test_a_chart_says_to_what_the_ends_of_its_range_are_rounded(auditor: Any) -> None:
    week = timezone.now() - timedelta(days=7)
    whole = week.replace(minute=0, second=0, microsecond=0)
    for since, until, rounded in (
        (week.replace(minute=30), "", 3_600),
        (whole, "", 0),
        (whole, (whole + timedelta(days=1, minutes=30)).isoformat(), 3_600),
        (timezone.now() - timedelta(hours=24), "", 0),
        (whole - timedelta(days=500), "", 86_400 if whole.hour else 0),
    ):
        asked = query(f"in:calls since:{since.isoformat()}{f' until:{until}' if until else ''}")
        assert statistics.histogram(auditor, asked).rounded == rounded, asked


def test_the_page_of_charts_says_the_same_and_compares_no_range_with_the_hour_that_it_is_a_part_of(
    auditor: Any, client: Client
) -> None:
    hour = (timezone.now() - timedelta(days=3)).replace(minute=0, second=0, microsecond=0)
    session = make_session("old")
    for minute in (10, 20, 40):
        ended_call(session, "search", ago=timezone.now() - hour - timedelta(minutes=minute), user=auditor)
    counting.count_all()
    client.force_login(auditor)
    since, until = hour + timedelta(minutes=30), hour + timedelta(minutes=45)
    ends = {"since": since.isoformat(), "until": until.isoformat()}
    answer = client.get("/explorer/charts/", ends)
    assert "Range rounded to the hour" in answer.content.decode()
    assert answer.context["changes"] == {}
    (bar,) = answer.context["points"]
    text = parse_qs(urlsplit(bar["explorer"]).query)["q"][0]
    assert (query(text).since, query(text).until) == (since, until)
    data = json.loads(answer.context["chart_json"])
    assert (data["since"], data["until"]) == (since.timestamp(), until.timestamp())
    assert "Range rounded" not in client.get("/explorer/charts/?last=24h").content.decode()


def test_what_the_rollups_can_answer_is_not_counted_row_by_row(auditor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counting.count_all()

    def refused(*_arguments: Any) -> None:
        raise AssertionError("counted row by row")

    monkeypatch.setattr(search, "histogram", refused)
    monkeypatch.setattr(search, "facets", refused)
    for text in (
        "in:calls",
        "in:calls server:github",
        "in:calls server:github tool:search outcome:ok",
        "in:calls user:bob",
    ):
        assert statistics.histogram(auditor, query(f"last:30d {text}")).series
    assert statistics.facets(auditor, query("last:30d in:calls outcome:error"))
