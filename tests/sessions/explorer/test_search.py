"""The explorer's search: pages without gap or repeat, each condition, who sees what, bounded work."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.audit.record import Actor, ServerRef
from servers.enums import AuditAction, AuditOutcome, IdentityKind
from servers.models import Identity, Server
from sessions.connections import commands
from sessions.enums import CallState
from sessions.explorer import language, search, statistics
from sessions.mcp.core.methods import COMPLETE, RESOURCES_READ
from sessions.models import Call, LogLine
from sessions.statistics import counting
from tests.servers.conftest import on_postgres, person  # noqa: F401  a fixture
from tests.sessions.explorer.rows import catch_up, ended_call, event, found, query
from tests.sessions.host.make import make_session

Check = Callable[[], None]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Runs on both databases."""
    CHECKS.append(function)
    return function


def root() -> Any:
    return get_user_model().objects.create_superuser("root", password="x")


def pages(user: Any, text: str, limit: int, cursor: str = "") -> list[search.ResultPage]:
    """All pages from there on, each by the cursor of the one before."""
    read = [search.page(user, query(text), cursor, limit)]
    while read[-1].older:
        read.append(search.page(user, query(text), read[-1].older, limit))
    return read


def newer_pages(user: Any, text: str, limit: int, cursor: str) -> list[search.ResultPage]:
    """Newest first, in the order of the page."""
    read = [search.page(user, query(text), cursor, limit)]
    while read[0].newer:
        read.insert(0, search.page(user, query(text), read[0].newer, limit))
    return read


def targets(read: list[search.ResultPage]) -> list[str]:
    return [row.target for page in read for row in page.rows]


@check
def pages_of_all_streams_follow_each_other_without_gap_or_repeat() -> None:
    session, admin = make_session(), root()
    expected = []
    for number in range(7):
        ended_call(session, f"tool{number}")
        event(AuditAction.SIGN_IN, f"person{number}")
        LogLine.objects.create(server=session.server, seq=number + 1, at=timezone.now(), source="stderr", logger=f"l{number}", text="x")  # fmt: skip
        expected += [f"tool{number}", f"person{number}", f"l{number}"]
    expected = [*reversed(expected), "root"]  # the account's own event came first
    read = pages(admin, "", 4)
    assert targets(read) == expected
    back = search.page(admin, query(""), read[-1].newer, 4)
    assert [row.target for row in back.rows] == expected[-len(read[-1].rows) - 4 : -len(read[-1].rows)]
    assert search.page(admin, query(""), read[1].newer, 4).rows == read[0].rows
    assert not read[0].newer


@check
def calls_whose_times_and_keys_disagree_stand_on_one_page_each() -> None:
    """Of two concurrent calls, the first requested may be stored last."""
    session, admin, now = make_session(), root(), timezone.now()
    for number in range(8):
        ended_call(session, f"tool{number}")
    order = (0, 2, 1, 3, 6, 5, 4, 7)
    for place, call in zip(order, Call.objects.order_by("pk"), strict=True):
        Call.objects.filter(pk=call.pk).update(created_at=now + timedelta(milliseconds=10 * place))
    expected = [f"tool{number}" for number in reversed(range(8))]
    for limit in (1, 2, 3, 5):
        read = pages(admin, "in:calls", limit)
        assert targets(read) == expected, limit
        back = newer_pages(admin, "in:calls", limit, search.Boundary({"calls": 0}, newer=True).text())
        assert targets(back) == expected, limit


@check
def newer_rows_follow_a_page_that_had_none_of_their_stream() -> None:
    session, admin = make_session(), root()
    event(AuditAction.SIGN_IN, "long ago")
    for number in range(6):
        ended_call(session, f"tool{number}")
    second = pages(admin, "in:calls,events", 2)[1]
    assert [row.target for row in search.page(admin, query("in:calls,events"), second.newer, 2).rows] == [
        "tool5",
        "tool4",
    ]


@check
def rows_that_came_since_a_page_are_counted() -> None:
    session, admin = make_session(), root()
    ended_call(session)
    newest = search.page(admin, query("")).newest
    assert search.newer_count(admin, query(""), newest) == 0
    ended_call(session)
    event(AuditAction.SIGN_IN)
    assert search.newer_count(admin, query(""), newest) == 2
    assert search.newer_count(admin, query("in:events"), search.page(admin, query("server:none")).newest) == 2


def a_mixture() -> Any:
    github, gitlab, admin, ann = make_session("github"), make_session("git-lab"), root(), person("Ann")
    ended_call(github, "old", ago=timedelta(hours=2.5))
    ended_call(github, "create_issue", user=ann)
    ended_call(github, "list_issues", user=ann, state=CallState.TOOL_ERROR, seconds=3.5)
    ended_call(gitlab, "create_issue", state=CallState.EXPIRED, arguments={"blob": "x" * 70_000})
    ended_call(gitlab, "file:///notes", method=RESOURCES_READ)
    ended_call(gitlab, "ref/prompt:p", method=COMPLETE)
    Call.objects.filter(target="list_issues").update(way="agent")
    event(AuditAction.SIGN_IN, "came", Actor.of_user(ann))
    event(AuditAction.SERVER_CHANGE, "changed", Actor.of_user(admin), server=ServerRef.of(github.server))
    event(AuditAction.SESSION_OPEN, "opened", Actor.of_user(admin), AuditOutcome.PENDING)
    return admin


@check
def each_condition_chooses_its_rows() -> None:
    admin = a_mixture()
    call = Call.objects.get(target="list_issues")
    assert call.session is not None
    mine = {
        "server:github in:calls": ["old", "list_issues", "create_issue"],
        "server:GitHub": ["old", "changed", "list_issues", "create_issue"],
        "server:git* outcome:error": ["list_issues"],
        f"server:{call.session.server.uid} in:events": ["changed"],
        "tool:create_issue": ["create_issue", "create_issue"],
        "tool:*issues": ["list_issues"],
        "tool:CREATE_* outcome:ok": ["create_issue"],
        "user:ann in:calls": ["list_issues", "create_issue"],
        "user:ann -tool:list_issues": ["came", "create_issue"],
        "way:agent": ["list_issues"],
        "outcome:error,not_sent": ["create_issue", "list_issues"],
        "outcome:pending": ["opened"],
        "outcome:running": [],
        "status:expired": ["create_issue"],
        "kind:resource": ["file:///notes"],
        "kind:completion": ["ref/prompt:p"],
        "own:only": ["ref/prompt:p"],
        "own:show server:git-lab": ["ref/prompt:p", "file:///notes", "create_issue"],
        "kind:servers": ["changed"],
        "kind:server:registration:change": ["changed"],
        "duration:>2s": ["list_issues"],
        "duration:>100ms duration:<10s": ["list_issues"],
        "size:>64kb": ["create_issue"],
        "size:>1kb": ["create_issue"],
        f"session:{call.session.uid} -outcome:ok": ["list_issues"],
        f"call:{call.uid} in:calls": ["list_issues"],
        "identity:shared outcome:error": ["list_issues"],
        "until:2h": ["old"],
        "since:1h in:calls server:github": ["list_issues", "create_issue"],
        "server:nothing": [],
        "user:*": None,
    }
    for text, expected in mine.items():
        rows = [row.target for row in search.page(admin, query(text)).rows]
        assert expected is None or sorted(rows) == sorted(expected), text


@check
def own_requests_are_shown_beside_the_rows_of_all_streams_or_alone() -> None:
    session, admin = make_session(), root()
    ended_call(session, "pay")
    ended_call(session, "ref/prompt:p", method=COMPLETE)
    event(AuditAction.SIGN_IN, "grace")
    LogLine.objects.create(server=session.server, seq=1, at=timezone.now(), source="stderr", logger="log", text="x")
    others = {"pay", "grace", "log", "root"}
    for text, expected in {
        "": others,
        "own:show": others | {"ref/prompt:p"},
        "own:show,only": others | {"ref/prompt:p"},
        "own:show in:events,logs": others - {"pay"},
        "own:only": {"ref/prompt:p"},
        "own:only in:events,logs": set(),
        "own:only kind:tool,completion": {"ref/prompt:p"},
    }.items():
        assert set(targets(pages(admin, text, 10))) == expected, text


@check
def a_condition_means_the_same_by_its_index_and_row_by_row() -> None:
    """With another condition before it in the order of preference, each is compared row by row."""
    admin = a_mixture()
    texts = ("server:github", "server:git*", "user:ann", "user:nobody", "way:agent", "outcome:error", "status:expired")
    more = ("kind:tool", "duration:>2s", "size:>64kb", "tool:create_issue", "kind:servers", "user:ANN")
    for text in (*texts, *more):
        by_index = found(admin, text)
        excluded = set(found(admin, f"-{text}"))
        assert len(by_index) + len(pages(admin, f"-{text}", 50)[0].rows) == len(pages(admin, "", 50)[0].rows), text
        assert excluded | set(by_index) == set(found(admin, "")), text


@check
def as_many_values_as_a_condition_can_have_are_searched() -> None:
    admin = a_mixture()
    for field in ("server", "tool", "user"):
        many = ",".join([*(f"{number:02}*" for number in range(language.VALUES - 1)), "git*"])
        text = " ".join([f"{field}:{many}"] * 3)
        assert len(pages(admin, text, 50)) == len(pages(admin, f"-{text}", 50)) == 1, field


@check
def events_of_a_deleted_person_are_found_however_the_name_is_typed() -> None:
    admin, ann = root(), person("Ann")
    event(AuditAction.SIGN_IN, "came", Actor.of_user(ann))
    assert found(admin, "in:events user:ann") != []
    ann.delete()
    for text in ("user:Ann", "user:ann", "user:ANN,bob", "user:an*"):
        assert targets(pages(admin, f"in:events {text}", 50)) == ["came"], text
        assert "came" not in targets(pages(admin, f"in:events -{text}", 50)), text
    assert targets(pages(admin, "in:events user:an", 50)) == []


@check
def a_row_shows_what_its_reader_may_know() -> None:
    session, admin = make_session(), root()
    ann, bob = person("ann", "view_server"), person("bob", "view_server")
    ended_call(session, "pay", user=ann, arguments={"iban": "DE12"}, seconds=0.25)
    (row,) = search.page(ann, query("")).rows
    call = Call.objects.get()
    assert (row.stream, row.key, row.kind, row.who, row.way, row.outcome) == (
        "calls",
        call.pk,
        "tool",
        "ann",
        "page",
        "ok",
    )
    assert (row.duration_ms, row.bytes, row.preview) == (250, call.total_bytes, '{"iban": "DE12"}')
    assert search.one(admin, "calls", call.pk) == row
    assert search.page(bob, query("")).rows[0].preview == ""
    assert search.page(bob, query("")).hidden == ["events"]
    assert search.page(person("guest"), query("")).hidden == ["calls", "events", "logs"]
    assert search.one(person("other"), "calls", call.pk) is None
    assert search.one(bob, "events", 1) is None


@check
def a_row_whose_key_no_column_holds_does_not_exist() -> None:
    admin = root()
    assert search.one(admin, "calls", 2**63) is search.one(admin, "events", 10**40) is None


@check
def what_is_done_as_a_person_is_seen_by_that_person_and_who_may_see_all() -> None:
    session = make_session()
    ann, bob = person("ann", "view_server"), person("bob", "view_server")
    own = Identity.objects.create(server=session.server, user=ann, kind=IdentityKind.PERSONAL, name="ann")
    theirs = commands.session_of(own, session.server)
    ended_call(theirs, "whoami", user=ann, personal=True)
    LogLine.objects.create(
        server=session.server, identity=own, seq=1, at=timezone.now(), source="stderr", text="private"
    )
    catch_up()
    for text in ("", "server:files", "user:ann", "whoami", "outcome:ok", "private in:logs"):
        assert search.page(ann, query(text)).rows, text
        assert not search.page(bob, query(text)).rows, text
        assert search.newer_count(bob, query(text), "o") == 0
    assert not any(facet.values for facet in search.facets(bob, query("")))
    assert not search.histogram(bob, query("last:1h")).series
    assert search.page(root(), query("whoami")).rows


@check
def numbers_count_what_the_query_finds() -> None:
    admin = a_mixture()
    counted = search.histogram(admin, query("in:calls last:4h"), buckets=4)
    assert {name: sum(counts) for name, counts in counted.series.items()} == {"ok": 3, "error": 1, "not_sent": 1}
    assert counted.series["ok"][1] == 1
    assert counted.series["ok"][3] == 2
    assert not counted.partial
    facets = {facet.field: facet.values for facet in search.facets(admin, query("in:calls"))}
    assert facets["outcome"][0] == ("ok", "OK", 3)
    assert facets["tool"][0] == ("create_issue", "create_issue", 2)
    assert ("agent", "Agent", 1) in facets["way"]
    assert ("resource", "Resource", 1) in facets["kind"]
    assert facets["server"][0][1:] == ("Github", 3)


@pytest.mark.django_db
@pytest.mark.parametrize("it", CHECKS, ids=lambda it: it.__name__)
def test_on_sqlite(it: Check) -> None:
    it()


@pytest.mark.parametrize("it", CHECKS, ids=lambda it: it.__name__)
def test_on_postgresql(on_postgres: None, django_db_blocker: Any, it: Check) -> None:  # noqa: F811  the fixture
    with django_db_blocker.unblock():
        it()


# --- bounded work ----------------------------------------------------------------------------------------------------
@pytest.mark.django_db
@pytest.mark.parametrize("text", ["tool:*needle", "identity:nobody,needle*", "outcome:ok tool:*needle"])
def test_a_search_ends_at_its_limit_of_work_says_how_far_it_came_and_goes_on(text: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(search, "CANDIDATES", 10)
    session, admin = make_session(), root()
    for number in range(35):
        name = "needle" if number == 2 else "shared"
        ended_call(session, "my needle" if number == 2 else f"tool{number}", ago=timedelta(seconds=100 - number))
        Call.objects.filter(pk=Call.objects.latest("pk").pk).update(identity_name=name)
    read = pages(admin, f"in:calls {text}", 5)
    assert targets(read) == ["my needle"]
    assert [page.searched_to is not None for page in read] == [True, True, True, False]
    times = [page.searched_to for page in read if page.searched_to]
    assert times == sorted(times, reverse=True)


@pytest.mark.django_db
def test_a_partial_search_of_one_stream_holds_back_older_rows_of_another(monkeypatch: Any) -> None:
    monkeypatch.setattr(search, "CANDIDATES", 5)
    session, admin = make_session(), root()
    event(AuditAction.SIGN_IN, "a needle before")
    for number in range(12):
        ended_call(session, "the needle" if number == 3 else f"tool{number}")
    read = pages(admin, "tool:*needle*", 5)
    assert targets(read) == ["the needle", "a needle before"]


@pytest.mark.django_db
def test_no_row_is_lost_where_the_searches_of_two_streams_end_at_different_times(monkeypatch: Any) -> None:
    monkeypatch.setattr(search, "CANDIDATES", 4)
    session, admin = make_session(), root()
    for number in range(3):
        event(AuditAction.SIGN_IN, f"needle {number}")
        ended_call(session, f"a needle {number}")
    for number in range(6):
        ended_call(session, f"tool{number}")
    event(AuditAction.SIGN_IN, "someone")
    expected = [text for number in (2, 1, 0) for text in (f"a needle {number}", f"needle {number}")]
    assert targets(pages(admin, "in:calls,events tool:*needle*", 5)) == expected


@pytest.mark.django_db
def test_rows_whose_times_and_keys_disagree_are_found_where_a_search_ends(monkeypatch: Any) -> None:
    monkeypatch.setattr(search, "CANDIDATES", 5)
    session, admin, now = make_session(), root(), timezone.now()
    for number in range(12):
        ended_call(session, f"needle{number}" if number in (2, 7) else f"tool{number}")
    for place, call in enumerate(Call.objects.order_by("pk")):
        at = now + timedelta(milliseconds=10 * place - (50 if place in (2, 7) else 0))
        Call.objects.filter(pk=call.pk).update(created_at=at)
    assert targets(pages(admin, "in:calls tool:*needle*", 5)) == ["needle7", "needle2"]


@pytest.mark.django_db
def test_newer_pages_go_on_where_a_search_ends_at_its_limit_of_work(monkeypatch: Any) -> None:
    monkeypatch.setattr(search, "CANDIDATES", 10)
    session, admin = make_session(), root()
    for number in range(35):
        ended_call(session, f"needle{number}" if number in (2, 30, 34) else f"tool{number}")
    text = "in:calls tool:*needle*"
    first = Call.objects.get(target="tool3")
    read = newer_pages(admin, text, 5, search.Boundary({"calls": first.pk}, newer=True).text())
    assert targets(read) == ["needle34", "needle30"]
    assert read[0].newest == f"o.calls-{Call.objects.latest('pk').pk + 1}"


@check
def a_slug_means_that_server_alone_whatever_others_are_named() -> None:
    one, two, admin = make_session("github"), make_session("github-2"), root()
    Server.objects.filter(pk=two.server_id).update(name="github")
    ended_call(one, "first")
    ended_call(two, "second")
    for text, expected in (("github", ["first"]), ("github-2", ["second"]), ("GitHub", ["second", "first"])):
        assert [row.target for row in search.page(admin, query(f"in:calls server:{text}")).rows] == expected


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "found"),
    [("Old", True), ("OLD", True), ("o*", True), ("*ld", True), ("*L*", True), ("ol", False), ("*o", False)],
)
def test_a_deleted_server_is_found_by_the_name_that_it_had(text: str, *, found: bool) -> None:
    admin, gone = root(), ServerRef(uuid4(), "Old")
    event(AuditAction.SERVER_REGISTER, "Old", server=gone)
    event(AuditAction.SERVER_DELETE, "Old", server=gone)
    assert len(search.page(admin, query(f"in:events server:{text}")).rows) == 2 * found


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("server:files", "calls_by_server"),
        ("tool:echo", "calls_by_target"),
        ("user:root", "calls_by_user"),
        ("way:page", "calls_by_way"),
        ("outcome:error", "calls_by_outcome"),
        ("kind:resource", "calls_by_kind"),
        ("duration:>2s", "calls_slow"),
        ("size:>1mb", "calls_large"),
        ("in:events", "audit_events"),
        ("in:events server:files", "audit_events_by_server"),
        ("in:events user:root", "audit_events_by_actor"),
        ("in:events outcome:denied", "audit_events_by_outcome"),
        ("in:events kind:sign-in", "audit_by_action"),
        ("server:files way:page outcome:ok since:1h", "calls_by_server"),
        ("tool:echo way:page user:root", "calls_by_target"),
        ("in:calls tool:echo kind:tool outcome:ok", "calls_by_target"),
        ("in:calls duration:>2s outcome:ok way:page", "calls_slow"),
    ],
)
def test_a_condition_is_read_from_its_index_in_the_order_of_the_page(text: str, index: str) -> None:
    admin = root()
    ended_call(make_session(), user=admin)
    with CaptureQueriesContext(connection) as captured:
        search.page(admin, query(text))
    table = {"calls": "mcp_sessions_call", "audit": "servers_auditevent"}[index.partition("_")[0]]
    of_page = [found["sql"] for found in captured.captured_queries if f"LIMIT {search.PAGE_SIZE + 1}" in found["sql"]]
    plans = [plan_of(sql) for sql in of_page if f'FROM "{table}"' in sql]
    assert plans
    assert all(index in plan and "TEMP B-TREE" not in plan for plan in plans)


def plan_of(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN QUERY PLAN " + sql.replace("%", "%%"))
        return "; ".join(row[3] for row in cursor.fetchall())


@pytest.mark.django_db
def test_a_page_of_any_query_takes_at_most_thirty_statements() -> None:
    admin = a_mixture()
    catch_up()
    text = "server:git* user:ann way:page outcome:ok,error duration:<10s -size:>1mb last:1d create_issue -absent"
    for one in (text, f"in:events {text}", "", "-server:github -user:ann"):
        with CaptureQueriesContext(connection) as captured:
            search.page(admin, query(one))
            search.histogram(admin, query(one))
        assert len(captured) <= 30


@pytest.mark.django_db
def test_a_range_holds_its_rows_when_the_clocks_change() -> None:
    session, admin = make_session(), root()
    for minutes in range(0, 120, 10):
        at = datetime(2026, 3, 29, 0, 5, tzinfo=UTC) + timedelta(minutes=minutes)
        ended_call(session, f"tool{minutes}", ago=timezone.now() - at)
    now = datetime(2026, 3, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    for text in ("since:2026-03-29T03:00 in:calls", "since:2026-03-29T03:01 until:2026-03-29T04:00 in:calls"):
        rows = search.page(admin, language.parse(text, now)).rows
        assert [row.target for row in rows] == [f"tool{minutes}" for minutes in range(110, 50, -10)], text


@pytest.mark.django_db
@pytest.mark.parametrize(
    "text", ["since:1000-01-02 until:8999-12-30", "last:50000w", "size:>8000000gb", "duration:<14000w"]
)
def test_the_largest_values_are_searched_and_counted(text: str) -> None:
    admin = root()
    ended_call(make_session())
    counting.count_all()
    for streams in ("in:calls", "in:calls,events,logs,messages"):
        search.page(admin, query(f"{text} {streams}"))
        statistics.histogram(admin, query(f"{text} {streams}"))
        statistics.facets(admin, query(f"{text} {streams}"))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "cursor", ["x", "o.calls-", "o.calls-x", "n.letters-3", "o.calls-999999999999999999999", "\0", "."]
)
def test_what_is_no_cursor_is_the_first_page(cursor: str) -> None:
    admin = root()
    ended_call(make_session())
    assert search.page(admin, query("in:calls"), cursor).rows or cursor.startswith("n")


# --- the timeline of a call ------------------------------------------------------------------------------------------
@pytest.mark.django_db
def test_a_timeline_has_every_word_of_the_person_who_refused_the_call() -> None:
    call, words = ended_call(make_session(), "pay"), "ann refused it: first ask me, then the first auditor."
    event(AuditAction.APPROVAL_REFUSE, "pay", details={"detail": words}, call_uid=call.uid)
    assert search.timeline(root(), call)[-1].detail == words


@pytest.mark.django_db
def test_a_timeline_is_read_from_the_log_or_from_the_row() -> None:
    session, admin, ann = make_session(), root(), person("ann", "view_server")
    call = ended_call(session, "pay", user=ann, state=CallState.FAILED, detail="Out of money.")
    call.attempts.create(number=1, reason="first", at=call.created_at)
    call.attempts.create(number=2, reason="session_gone", at=call.created_at)
    about = {"actor": Actor.of_user(ann), "server": ServerRef.of(session.server), "call_uid": call.uid}
    for action, details in (
        (AuditAction.CALL_SEND, {"attempt": 1}),
        (AuditAction.CALL_SEND, {"attempt": 2, "reason": "session_gone"}),
        (AuditAction.QUESTION_RECEIVE, {}),
        (AuditAction.CALL_FINISH, {"late": True, "answer": "succeeded"}),
    ):
        event(action, "pay", details=details, **about)
    of_log = search.timeline(admin, call)
    assert [one.kind for one in of_log] == ["end", "send", "attempt", "question", "late"]
    assert of_log[2].detail == "session_gone"
    assert of_log[0].url.endswith(f"/audit/{of_log[0].seq}/")
    of_row = search.timeline(ann, call)
    assert [one.kind for one in of_row] == ["request", "send", "attempt", "end"]
    assert of_row[-1].detail == "Out of money."
    assert not any(one.url for one in of_row)
