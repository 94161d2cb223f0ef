"""The explorer's pages: the URL, what each user sees, and what works without scripts."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import quote, unquote

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.accounts import own
from servers.audit import writer as writing
from servers.audit.proof import removals
from servers.enums import AuditAction, AuditOutcome, IdentityKind
from servers.exporting.selection import events_of
from servers.models import AuditEvent, Identity
from sessions.enums import CallState
from sessions.explorer import indexing, search
from sessions.models import Call, LogLine, McpSession, SavedView, WireMessage
from sessions.statistics import counting
from tests.servers.conftest import person
from tests.sessions.explorer.rows import catch_up, ended_call, event
from tests.sessions.host.make import make_session
from tests.sessions.statistics.conftest import make_calls
from tests.sessions.wire.rows import add_message

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def session(db: None) -> McpSession:
    return make_session("github")


@pytest.fixture
def ada(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("ada", password="x"))
    return client


def client_of(name: str, *permissions: str) -> Client:
    client = Client()
    client.force_login(person(name, *permissions))
    return client


def markup(client: Client, q: str | None = None, path: str = "/explorer/", status: int = 200, **params: str) -> str:
    answer = client.get(path, params if q is None else {"q": q, **params})
    assert answer.status_code == status, answer.content[:500]
    return " ".join(answer.content.decode().split())


def sels(page: str) -> list[str]:
    return re.findall(r'<tr data-sel="([^"]+)"', page)


@pytest.mark.usefixtures("tamperable")
def test_an_event_that_was_changed_keeps_no_one_from_the_others(ada: Client, session: McpSession) -> None:
    call = ended_call(session)
    seq = event(AuditAction.SIGN_IN, "grace")
    step = AuditEvent.objects.get(call_uid=call.uid)
    AuditEvent.objects.filter(seq__in=[seq, step.seq]).update(body="{", outcome="eve")
    AuditEvent.objects.filter(seq=seq).update(action="eve")
    assert f"events.{seq}" in sels(markup(ada, "last:1h", sel=f"calls.{call.pk}"))
    for part in ("histogram", "facets"):
        assert markup(ada, "last:1h in:events", f"/explorer/{part}/")
    catch_up()
    event(AuditAction.SIGN_IN, "hopper")
    catch_up()
    assert len(sels(markup(ada, "hopper"))) == 1


def test_a_list_says_which_calls_the_retention_removed_and_leads_to_their_events(
    ada: Client, session: McpSession
) -> None:
    ended_call(session)
    gone = ended_call(session, "pay", ago=timedelta(days=3))
    asked = event(AuditAction.CALL_REQUEST, "pay", outcome=AuditOutcome.PENDING, call_uid=gone.uid)
    counting.count_all()
    removals.allow("calls", timezone.now() - timedelta(days=2))
    Call.objects.filter(pk=gone.pk).delete()
    page = markup(ada, "last:7d in:calls,events tool:pay")
    assert "were removed by retention" in page
    (steps,) = [unescape(link) for link in re.findall(r'href="\?([^"]+)">Search their events', page)]
    found = markup(ada, path=f"/explorer/?{steps}&sel=events.{asked}")
    assert sels(found) == [f"events.{asked}"]
    assert "Call requested" in found
    assert f"/calls/{gone.uid}/" not in found
    facets = unquote(unescape(markup(ada, path=f"/explorer/facets/?{steps}")))
    assert facets.count('kind:"call:tool:request"') > 1
    assert "Includes calls removed by retention" in markup(ada, "last:7d in:calls", "/explorer/histogram/")
    assert "were removed by retention" in markup(ada, "in:calls,events tool:pay")
    for q in ("last:24h", "in:events", "in:calls last:1h"):
        assert "removed by retention" not in markup(ada, q)
        assert "removed by retention" not in markup(ada, q, "/explorer/histogram/")
    assert "Search their events" not in markup(ada, "in:calls duration:>1s")
    reader = client_of("vera", "view_server")
    assert "Search their events" not in markup(reader, "in:calls")
    assert "were removed by retention" in markup(reader, "in:calls")


# --- the address -----------------------------------------------------------------------------------------------------
def test_without_a_query_the_last_day_is_shown_and_an_empty_one_means_any_time(
    ada: Client, session: McpSession
) -> None:
    old = ended_call(session, ago=timedelta(days=3))
    assert f"calls.{old.pk}" not in sels(markup(ada))
    assert f"calls.{old.pk}" in sels(markup(ada, ""))


def test_a_relative_range_stays_relative_in_every_link(ada: Client, session: McpSession) -> None:
    ended_call(session)
    page = markup(ada, "last:1h in:calls outcome:ok")
    links = [unescape(link) for link in re.findall(r'href="\?(q=[^"]+)"', page)]
    assert links
    absolute = [link for link in links if "since" in link or "until" in link]
    assert absolute == []
    removed = f"q={quote('last:1h in:calls', safe='').replace('%20', '+')}"
    assert removed in [link.split("&")[0] for link in links]


def test_each_range_stream_and_column_is_a_link_or_box_without_script(ada: Client, session: McpSession) -> None:
    call = ended_call(session, "create_issue", arguments={"title": "Acme"})
    page = markup(ada, "last:6h server:github", cols="way,preview,size")
    for words in ("Last 15 minutes", "Any time", "Calls", "Events", "Logs"):
        assert re.search(rf'<a href="\?q=[^"]+"[^>]*>\s*{words}', page), words
    assert "Acme" in page
    assert re.findall(r'<th scope="col"[^>]*>([^<]+)', page) == ["Time", "Event", "Source", "Arguments", "Size"]
    assert sels(page) == [f"calls.{call.pk}"]


def test_all_rows_of_any_time_are_a_link_away(ada: Client, session: McpSession) -> None:
    old = ended_call(session, ago=timedelta(days=3))
    for q, words in (("in:calls,events", "All"), ("own:show", "Hide mcpadmin&#x27;s own requests|Hide mcpadmin's own")):
        page = markup(ada, q)
        link = re.search(rf'<a[^>]*href="\?([^"]+)"[^>]*>(?: ?<svg.*?</svg>)? ?(?:{words})', page)
        assert link, words
        found = markup(ada, path=f"/explorer/?{unescape(link[1])}")
        assert f"calls.{old.pk}" in sels(found), words
        assert re.search(r'aria-current="true">All</a>', found)


def test_pages_follow_each_other_by_links(ada: Client, session: McpSession) -> None:
    calls = [ended_call(session, f"tool{number}") for number in range(60)]
    first = markup(ada, "in:calls")
    older = unescape(re.findall(r'href="\?([^"]*cursor=[^"]*)"', first)[-1])
    second = markup(ada, path=f"/explorer/?{older}")
    assert sorted(sels(first) + sels(second)) == sorted(f"calls.{call.pk}" for call in calls)
    assert "data-followable" in first
    assert "data-followable" not in second


def test_a_page_says_in_which_direction_its_search_stopped_and_goes_on(
    ada: Client, session: McpSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [ended_call(session, f"tool{number}") for number in range(12)]
    monkeypatch.setattr(search, "CANDIDATES", 5)
    older = markup(ada, "in:calls tool:*none*", cursor=f"o.calls-{calls[9].pk}")
    assert "No match back to" in older
    assert "Search older rows" in older
    newer = markup(ada, "in:calls tool:*none*", cursor=f"n.calls-{calls[2].pk}")
    assert "No match up to" in newer
    assert "Search newer rows" in newer
    assert "Search older rows" not in newer
    assert "No more rows" in markup(ada, "in:calls tool:*none*", cursor=f"n.calls-{calls[9].pk}")


@pytest.mark.parametrize(
    ("q", "place"), [("last:24h toool:x", "toool:"), ('last:24h "open', '"open'), ("duration:2s", "duration:2s")]
)
def test_what_cannot_be_read_is_marked_at_its_place_with_what_to_write(ada: Client, q: str, place: str) -> None:
    page = unescape(markup(ada, q, status=422))
    assert f"<mark>{place}</mark>" in page
    assert 'aria-describedby="query-error"' in page
    assert "Query fields" in page
    for path in ("rows/", "newer/", "histogram/", "facets/"):
        markup(ada, q, f"/explorer/{path}", status=404)


def test_a_time_without_zone_is_read_in_the_zone_of_the_address(ada: Client, session: McpSession) -> None:
    noon = timezone.now().replace(hour=12, minute=30) - timedelta(days=2)
    call = ended_call(session, ago=timezone.now() - noon)
    day = f"{noon:%Y-%m-%d}"
    berlin = f"since:{day}T13:00 until:{day}T15:00 in:calls"
    assert sels(markup(ada, berlin, tz="Europe/Berlin")) == [f"calls.{call.pk}"]
    assert sels(markup(ada, berlin, tz="UTC")) == []
    assert sels(markup(ada, berlin, tz="No/Such_Zone")) == []


def test_a_time_in_an_address_without_zone_is_read_in_the_zone_of_the_account(ada: Client, session: McpSession) -> None:
    noon = timezone.now().replace(hour=12, minute=30) - timedelta(days=2)
    call = ended_call(session, ago=timezone.now() - noon)
    tokyo = f"since:{noon:%Y-%m-%d}T21:00 until:{noon:%Y-%m-%d}T22:00 in:calls"
    assert sels(markup(ada, tokyo)) == []
    user = get_user_model().objects.get(username="ada")
    own.change_preferences(user, {"time_zone": "Asia/Tokyo"})
    assert sels(markup(ada, tokyo)) == [f"calls.{call.pk}"]
    assert 'name="tz" value="Asia/Tokyo"' in markup(ada, tokyo)
    assert sels(markup(ada, tokyo, tz="UTC")) == []
    own.change_preferences(user, {"utc": True})
    assert sels(markup(ada, tokyo)) == []


@pytest.mark.parametrize(
    "times", ["since:{day} until:{day}", "since:{day}T00:00", "last:7d until:{day}T23:59", "since:7d", "last:7d", ""]
)
def test_the_export_of_a_query_selects_what_its_page_shows(ada: Client, session: McpSession, times: str) -> None:
    noon = timezone.now().replace(hour=12, minute=0) - timedelta(days=2)
    for hours in (-18, -6, 0, 6, 18):
        ended_call(session, f"tool{hours}", ago=timezone.now() - noon - timedelta(hours=hours))
    text = times.format(day=f"{noon:%Y-%m-%d}")
    for zone in ("Asia/Tokyo", "America/Los_Angeles", "UTC"):
        page = markup(ada, f"{text} in:calls", tz=zone)
        link = re.search(r'href="/exports/add/\?query=([^"]*)"', page)
        assert link
        exported = events_of(get_user_model().objects.get(username="ada"), unquote(unescape(link[1])))
        shown = [Call.objects.get(pk=sel.removeprefix("calls.")).uid for sel in sels(page)]
        assert shown
        assert {one.call_uid for one in exported} == set(shown), (text, zone)


def test_an_empty_range_offers_longer_ones(ada: Client) -> None:
    page = markup(ada, "last:1h in:calls tool:none")
    assert "Nothing found" in page
    assert re.search(r'<a class="btn btn-d" href="\?q=last%3A6h\+in%3Acalls\+tool%3Anone"', page)


def test_a_search_by_words_says_what_is_not_indexed_yet(
    ada: Client, session: McpSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_call(session, "pay", arguments={"customer": "acme"})
    words = "Still indexing: free text does not find the newest"
    assert words not in markup(ada, "in:calls acme")  # no more than usual
    monkeypatch.setattr(indexing, "USUAL_LAG", timedelta(0))
    page = markup(ada, "in:calls acme")
    assert words in page
    assert "No indexed row matches the query" in page
    assert words in markup(ada, "in:calls -acme", path="/explorer/rows/")
    for without_index in ("in:calls tool:pay", "in:logs acme"):
        assert "Still indexing" not in markup(ada, without_index)
    catch_up()
    page = markup(ada, "in:calls acme")
    assert "Still indexing" not in page
    assert len(sels(page)) == 1


# --- one row ---------------------------------------------------------------------------------------------------------
def test_a_call_shows_its_exchange_timeline_session_and_proof(ada: Client, session: McpSession) -> None:
    before = ended_call(session, "first")
    call = ended_call(session, "create_issue", arguments={"title": "Acme"}, result={"content": [], "number": 4711})
    for path in (f"/explorer/rows/calls/{call.pk}/", f"/explorer/?q=in:calls&sel=calls.{call.pk}"):
        page = unescape(markup(ada, path=path))
        for words in ('"title": "Acme"', "4711", "first", f"/calls/{call.uid}/repeat/", "Valid in the audit chain"):
            assert words in page, words
        assert f"sel=calls.{before.pk}" in page


def test_the_copied_link_still_finds_the_row_when_the_list_has_moved_on(ada: Client, session: McpSession) -> None:
    call = ended_call(session, ago=timedelta(days=40))
    page = markup(ada, path=f"/explorer/rows/calls/{call.pk}/")
    link = unescape(re.findall(r'data-copy="(http://testserver[^"]+)"', page)[0])
    opened = markup(ada, path=link.removeprefix("http://testserver"))
    assert sels(opened) == [f"calls.{call.pk}"]
    assert f'data-detail="calls.{call.pk}"' in opened


def test_without_permission_to_payloads_a_link_shows_what_was_called_and_not_with_what(
    ada: Client, session: McpSession
) -> None:
    call = ended_call(
        session, "create_issue", arguments={"title": "Acme"}, result={"x": 4711},
        state=CallState.RPC_ERROR, error_message="acme is closed",
    )  # fmt: skip
    rhea = client_of("rhea", "view_server", "view_auditevent")
    for path in (f"/explorer/rows/calls/{call.pk}/", f"/explorer/?q=in:calls&cols=preview&sel=calls.{call.pk}"):
        page = markup(rhea, path=path)
        assert "create_issue" in page
        assert "have permission to read the arguments" in page
        for hidden in ("Acme", "4711", "acme is closed"):
            assert hidden not in page


def test_a_log_line_and_a_message_lead_to_their_own_place_and_call(ada: Client, session: McpSession) -> None:
    call = ended_call(session)
    for seq in (1, 2):
        line = a_line(session, seq, text=f"line {seq}")
        sent = add_message(session.server, call_uid=call.uid)
    LogLine.objects.filter(pk=line.pk).update(call_uid=call.uid)
    for sel, address in (
        (f"logs/{line.pk - 1}", "/servers/github/logs/?before=2"),
        (f"logs/{line.pk}", "/servers/github/logs/?before=3"),
        (f"messages/{sent.pk}", "/servers/github/protocol/2/"),
    ):
        page = unescape(markup(ada, path=f"/explorer/rows/{sel}/"))
        assert f'href="{address}" aria-label="Open on its own page"' in page
        assert (f'href="/calls/{call.uid}/"' in page) == (sel != f"logs/{line.pk - 1}")
    assert "line 1" in markup(ada, path="/servers/github/logs/?before=2")
    assert "line 2" not in markup(ada, path="/servers/github/logs/?before=2")
    olga = person("olga", "view_server")
    personal = Identity.objects.create(server=session.server, kind=IdentityKind.PERSONAL, user=olga, name="olga")
    LogLine.objects.update(identity=personal)
    WireMessage.objects.update(identity=personal)
    for sel in (f"logs/{line.pk}", f"messages/{sent.pk}"):
        assert "Open on its own page" not in markup(ada, path=f"/explorer/rows/{sel}/")


def a_line(session: McpSession, seq: int, **fields: Any) -> LogLine:
    return LogLine.objects.create(server=session.server, seq=seq, at=timezone.now(), source="server", **fields)


def test_a_row_of_another_users_own_session_does_not_exist(session: McpSession) -> None:
    olga = person("olga", "view_server")
    call = ended_call(session, "private_tool", user=olga, personal=True)
    pete = client_of("pete", "view_server")
    assert sels(markup(pete, "in:calls")) == []
    markup(pete, path=f"/explorer/rows/calls/{call.pk}/", status=404)
    assert "private_tool" not in markup(pete, path=f"/explorer/?q=in:calls&sel=calls.{call.pk}")
    assert "private_tool" not in markup(pete, path="/explorer/facets/?q=in:calls")
    counting.count_all()
    assert "private_tool" not in markup(pete, path="/explorer/facets/?q=in:calls")
    assert "private_tool" not in markup(pete, path="/explorer/charts/?by=tool")


def test_who_may_not_read_the_log_sees_calls_and_is_told_what_is_missing(session: McpSession) -> None:
    ended_call(session)
    event(AuditAction.USER_CHANGE, "secret-subject")
    page = markup(client_of("vera", "view_server"))
    assert "secret-subject" not in page
    assert "Hidden: events. You don't have permission to view them." in page
    markup(client_of("nil"), status=403)
    markup(client_of("rita", "view_auditevent"), "in:events")


def test_what_a_server_named_itself_is_shown_and_never_run(ada: Client, session: McpSession) -> None:
    call = ended_call(session, HOSTILE, arguments={"a": HOSTILE})
    for path in (
        "/explorer/?cols=preview", f"/explorer/rows/calls/{call.pk}/", "/explorer/facets/", "/explorer/charts/?by=tool"
    ):  # fmt: skip
        page = markup(ada, path=path)
        assert HOSTILE not in page
        assert "&lt;script&gt;" in page


# --- numbers ---------------------------------------------------------------------------------------------------------
def test_chart_and_facets_count_the_rows_of_the_query(ada: Client, session: McpSession) -> None:
    for number in range(4):
        ended_call(session, "search", state=CallState.FAILED if number == 0 else CallState.SUCCEEDED)
    for _ in range(2):  # uncounted, then counted
        page = markup(ada, "last:24h in:calls", "/explorer/histogram/")
        chart = json.loads(unescape(re.findall(r'data-chart="([^"]+)"', page)[0]))
        assert {one["name"]: sum(one["counts"]) for one in chart["series"]} == {"ok": 3, "error": 1}
        facets = markup(ada, "last:24h in:calls", "/explorer/facets/")
        assert re.search(r'title="search">.*?<span class="num dim">4</span>', facets)
        assert "q=last%3A24h+in%3Acalls+tool%3Asearch" in facets
        assert "q=last%3A24h+in%3Acalls+-tool%3Asearch" in facets
        counting.count_all()


def test_each_bar_of_the_table_leads_to_its_rows(ada: Client, session: McpSession) -> None:
    call = ended_call(session, ago=timedelta(hours=5))
    ended_call(session)
    page = markup(ada, "last:24h in:calls", "/explorer/histogram/")
    bars = [unescape(link) for link in re.findall(r'<td class="m"> ?<a href="\?([^"]+)"', page)]
    assert len(bars) == 2
    assert sels(markup(ada, path=f"/explorer/?{bars[0]}")) == [f"calls.{call.pk}"]


def test_charts_show_calls_errors_and_latency_and_lead_to_the_calls(ada: Client, session: McpSession) -> None:
    for seconds in (0.04, 0.04, 4.0):
        ended_call(session, "search", seconds=seconds)
    failed = ended_call(session, "refund", state=CallState.FAILED)
    page = markup(ada, path="/explorer/charts/?by=tool")
    assert ">4</a>" in page
    assert "25.0% of calls" in page
    links = [unescape(link) for link in re.findall(r'href="(/explorer/\?q=[^"]+)"', page)]
    errors = next(link for link in links if "refund" in link and "outcome" in link)
    assert sels(markup(ada, path=errors)) == [f"calls.{failed.pk}"]
    narrowed = markup(ada, path=f"/explorer/charts/?server={session.server.uid}&tool=search")
    assert ">3</a>" in narrowed
    assert "No calls in this range" in markup(ada, path="/explorer/charts/?caller=nobody")


def test_the_row_of_a_deleted_server_leads_to_its_calls_alone(ada: Client, session: McpSession) -> None:
    ended_call(session)
    counting.count_all()
    for there in (True, False):
        page = markup(ada, path="/explorer/charts/?by=server")
        narrowing = re.search(rf'<td class="m ell long">(<a href="\?[^"]*">)?{session.server.name}', page)
        assert narrowing
        assert bool(narrowing[1]) is there
        session.server.delete() if there else None


def test_as_many_calls_as_the_day_before_are_no_change(ada: Client, session: McpSession) -> None:
    now = timezone.now()
    for number in range(50 * 6):
        make_calls(session, 1, now - timedelta(minutes=5 + 10 * number))
    counting.count_all()
    assert ada.get("/explorer/charts/").context["changes"]["calls"] == "unchanged"


# --- following -------------------------------------------------------------------------------------------------------
def test_newer_rows_are_counted_from_the_newest_one_shown(ada: Client, session: McpSession) -> None:
    ended_call(session)
    page = markup(ada, "in:calls")
    newest = unescape(re.findall(r'data-newest="([^"]+)"', page)[0])
    assert json.loads(ada.get("/explorer/newer/", {"q": "in:calls", "newest": newest}).content)["count"] == 0
    ended_call(session)
    ended_call(session, "other")
    assert json.loads(ada.get("/explorer/newer/", {"q": "in:calls", "newest": newest}).content)["count"] == 2
    assert len(sels(markup(ada, "in:calls", "/explorer/rows/"))) == 3


def test_the_page_takes_the_same_queries_for_one_row_and_for_fifty(ada: Client, session: McpSession) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            markup(ada, "last:24h")
        return len(queries)

    ended_call(session)
    markup(ada)
    one = cost()
    for number in range(60):
        ended_call(session, f"tool{number}")
    assert cost() <= one + 1  # whether there is an older page
    assert one <= 30


# --- saved views -----------------------------------------------------------------------------------------------------
def test_a_view_is_saved_under_its_name_replaced_shared_and_deleted(ada: Client) -> None:
    view = {"name": " Failed  on github ", "q": "last:15m outcome:error", "cols": "time,what,way", "back": "/explorer/"}
    assert ada.post("/explorer/views/", view)["Location"] == "/explorer/"
    ada.post("/explorer/views/", view | {"q": "last:1h outcome:error", "shared": "yes"})
    saved = SavedView.objects.get()
    assert (saved.name, saved.query, saved.shared) == ("Failed on github", "last:1h outcome:error", True)
    bob = client_of("bob", "view_server")
    page = unescape(markup(bob))
    assert '/explorer/?q=last%3A1h%20outcome%3Aerror&tz=UTC&cols=time%2Cwhat%2Cway">Failed on github</a>' in page
    assert bob.post(f"/explorer/views/{saved.uid}/delete/").status_code == 404
    ada.post("/explorer/views/", view | {"q": "last:1h outcome:error"})
    assert "Failed on github" not in markup(bob)
    assert ada.post(f"/explorer/views/{saved.uid}/delete/").status_code == 302
    assert not SavedView.objects.exists()


@pytest.mark.parametrize("field", ["name", "q", "cols"])
def test_a_view_with_a_null_character_is_refused(ada: Client, field: str) -> None:
    view = {"name": "x", "q": "in:calls", "cols": "time"}
    answer = ada.post("/explorer/views/", view | {field: "a\0b"}, follow=True)
    assert "A view cannot contain a null character." in answer.content.decode()
    assert not SavedView.objects.exists()


def test_an_administrator_may_delete_a_shared_view_of_another_person_and_no_private_one(ada: Client) -> None:
    bob = client_of("bob", "view_server")
    for name, shared in (("open", {"shared": "yes"}), ("mine", {})):
        bob.post("/explorer/views/", {"name": name, "q": "in:calls", **shared})
    uids = dict(SavedView.objects.values_list("name", "uid"))
    assert ada.post(f"/explorer/views/{uids['mine']}/delete/").status_code == 404
    address = f"/explorer/views/{uids['open']}/delete/"
    asked = ada.get(f"{address}?back=/explorer/%3Fq%3Din:calls").content.decode()
    assert "This view is shared: deleting it removes it for everyone." in asked
    assert 'href="/explorer/?q=in:calls">Cancel' in asked
    assert SavedView.objects.filter(name="open").exists(), "the page only asks"
    assert ada.post(f"{address}?back=/explorer/%3Fq%3Din:calls")["Location"] == "/explorer/?q=in:calls"
    assert ada.get(f"/explorer/views/{uids['mine']}/delete/").status_code == 404
    event = AuditEvent.objects.get(action=AuditAction.VIEW_DELETE)
    assert (event.actor_name, event.subject, json.loads(event.body)["details"]) == ("ada", "open", {"owner": "bob"})
    bob.post(f"/explorer/views/{uids['mine']}/delete/")
    assert AuditEvent.objects.filter(action=AuditAction.VIEW_DELETE).count() == 1, "one's own is no event"


def test_only_a_shared_view_is_deleted_after_a_question(ada: Client) -> None:
    for name, shared in (("open", {"shared": "yes"}), ("mine", {})):
        ada.post("/explorer/views/", {"name": name, "q": "in:calls", **shared})
    uids, page = dict(SavedView.objects.values_list("name", "uid")), markup(ada)
    assert f'href="/explorer/views/{uids["open"]}/delete/?back=' in page
    assert f'action="/explorer/views/{uids["mine"]}/delete/"' in page


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example/", "/users/"])
def test_saving_leads_back_to_the_explorer_alone(ada: Client, back: str) -> None:
    answer = ada.post("/explorer/views/", {"name": "x", "q": "in:calls", "back": back})
    assert answer["Location"] == "/explorer/"


def test_a_view_without_a_name_is_refused_in_words(ada: Client) -> None:
    page = ada.post("/explorer/views/", {"name": "  ", "q": "in:calls"}, follow=True).content.decode()
    assert "Give the view a name" in page
    assert not SavedView.objects.exists()


def test_fields_and_values_are_completed(ada: Client, session: McpSession) -> None:
    def offered(text: str) -> list[str]:
        answer = json.loads(ada.get("/explorer/complete/", {"q": text, "at": str(len(text))}).content)
        return [one["insert"] for one in answer["completions"]]

    assert "server:" in offered("last:1h ser")
    assert offered("outcome:err") == ["error"]
    assert offered("way:") == ["page", "agent", "command", "task"]
    assert offered("server:git") == ["github"] or offered("server:git") == ["Github"]


def test_a_failure_of_the_charts_leads_to_each_call_that_it_counts(ada: Client, session: McpSession) -> None:
    failed = {ended_call(session, state=state).pk for state in (CallState.FAILED, CallState.NOT_SENT)}
    failed.add(ended_call(session, state=CallState.OUTCOME_UNKNOWN).pk)
    ended_call(session)
    page = markup(ada, path="/explorer/charts/")
    (link, number) = re.findall(r'href="(/explorer/[^"]+)">(\d+)</a></div>\s*<div[^>]*>75.0%', page)[0]
    assert number == "3"
    assert set(sels(markup(ada, path=unescape(link)))) == {f"calls.{pk}" for pk in failed}


@pytest.mark.parametrize(
    "query",
    [
        "since=2020-01-01T00:00:00Z&until=9999-12-31T23:59:59Z",
        "since=0001-01-01T00:00:00Z",
        "since=1000-01-02T00:00:00Z&until=8999-01-01T00:00:00Z",
        "since=9999-12-31T23:59:59-12:00",
    ],
)
def test_the_ends_of_a_range_that_no_chart_can_show_are_the_usual_ones(ada: Client, query: str) -> None:
    answer = ada.get(f"/explorer/charts/?{query}")
    assert answer.status_code == 200
    asked = answer.context["asked"]
    assert asked.last == "24h" or asked.until <= timezone.now()


def test_a_list_of_rows_that_no_audit_event_tells_of_looks_again_by_itself(ada: Client) -> None:
    rita = client_of("rita", "view_auditevent")
    for client, q, polled in (
        (ada, "last:1h in:calls,events", False),
        (ada, "last:1h", True),
        (ada, "last:1h in:logs", True),
        (ada, "last:1h in:calls,messages", True),
        (rita, "in:events", True),
    ):
        assert ("data-polled" in markup(client, q)) is polled, q
