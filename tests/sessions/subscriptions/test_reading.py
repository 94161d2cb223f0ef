"""The board and the history are read in the right order, page by page, and bounded."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.utils import timezone

from servers.audit import payloads
from servers.models import Server
from sessions.enums import SubscriptionState
from sessions.models import McpSession, Subscription
from sessions.subscriptions import board
from sessions.subscriptions import history as past
from sessions.subscriptions.sparkline import HOURS, sparkline
from tests.sessions.host.make import make_session
from tests.sessions.subscriptions.rows import add_gap, add_hours, add_version, make_subscription

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> McpSession:
    return make_session("orders")


def uris(page: board.BoardPage) -> list[str]:
    return [row.subscription.uri for row in page.rows]


def read(before: str = "", **filters: str) -> board.BoardPage:
    return board.board(AnonymousUser(), Server.objects.all(), board.Filters(**filters), before)


# --- the board -------------------------------------------------------------------------------------------------------
def test_what_changed_last_comes_first(session: McpSession) -> None:
    old = make_subscription(session, "a", created_at=timezone.now() - timedelta(days=1))
    make_subscription(session, "b", created_at=timezone.now() - timedelta(hours=1))
    add_version(old, "new")
    assert uris(read()) == ["a", "b"]


def test_every_subscription_is_on_exactly_one_page(session: McpSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "PAGE_SIZE", 1)
    now = timezone.now()
    for number in range(5):  # pairs share the same moment
        make_subscription(session, str(number), created_at=now - timedelta(minutes=number // 2))
    pages, before = [], ""
    while not pages or before:
        page = read(before)
        pages.append(uris(page))
        before = page.older
    assert pages == [["1"], ["0"], ["3"], ["2"], ["4"]]


@pytest.mark.parametrize(
    "cursor", ["nonsense", "~5", "2026-02-30T00:00:00+00:00~5", "2026-01-01~x", "2026-01-01T00:00:00~1"]
)
def test_a_cursor_that_is_none_leads_to_the_first_page(cursor: str, session: McpSession) -> None:
    make_subscription(session)
    page = read(cursor)
    assert page.first
    assert len(page.rows) == 1


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, {"fine", "refused", "gap", "unread"}),
        ({"show": "all"}, {"fine", "refused", "gap", "unread", "ended"}),
        ({"show": "ended"}, {"ended"}),
        ({"show": "attention"}, {"refused", "gap", "unread"}),
        ({"show": "no such state"}, {"fine", "refused", "gap", "unread"}),
        ({"text": "REFUS"}, {"refused"}),
        ({"text": "orders", "show": "listening"}, {"fine", "gap", "unread"}),
        ({"server": "orders"}, {"fine", "refused", "gap", "unread"}),
        ({"server": "another"}, set()),
    ],
    ids=lambda value: " ".join(sorted(value)) or "nothing",  # a set prints in a different order in each process
)
def test_each_filter_finds_what_it_names(filters: dict[str, str], found: set[str], session: McpSession) -> None:
    make_subscription(session, "fine")
    make_subscription(session, "refused", state=SubscriptionState.REFUSED)
    add_gap(make_subscription(session, "gap"), began=5)
    make_subscription(session, "unread", read_fault="timeout")
    make_subscription(session, "ended", active=False, state=SubscriptionState.ENDED, read_fault="timeout")
    assert set(uris(read(**filters))) == found


def test_the_numbers_count_what_is_active(session: McpSession) -> None:
    add_hours(make_subscription(session, "a"), 3, 4)
    add_gap(make_subscription(session, "b", state=SubscriptionState.WAITING), began=1)
    make_subscription(session, "c", active=False, state=SubscriptionState.ENDED)
    assert board.numbers(AnonymousUser(), Server.objects.all()) == {
        "active": 2,
        "listening": 1,
        "events": 7,
        "attention": 1,
    }


def test_a_row_needs_no_query_of_its_own(session: McpSession, django_assert_num_queries: Any) -> None:
    for number in range(10):
        add_hours(make_subscription(session, str(number)), 1)
    with django_assert_num_queries(3):
        assert [(row.spark.total, row.subscription.server.slug) for row in read().rows] == [(1, "orders")] * 10


# --- the sparkline ---------------------------------------------------------------------------------------------------
def test_the_line_has_a_point_an_hour_and_says_the_same_in_words() -> None:
    now = datetime(2026, 11, 21, 22, 30, tzinfo=UTC)
    hour = now.replace(minute=0)
    spark = sparkline({hour: 2, hour - timedelta(hours=3): 8, hour - timedelta(hours=HOURS): 99}, now)
    points = [float(point.split(",")[1]) for point in spark.points.split()]
    assert len(points) == HOURS
    assert (points[-1], points[-4], points[0]) == (15.5, 2.0, 20.0)
    assert spark.words == "10 updates in the last 24 hours, at most 8 in one hour"


def test_a_quiet_day_is_a_flat_line() -> None:
    spark = sparkline({}, timezone.now())
    assert {point.split(",")[1] for point in spark.points.split()} == {"20.0"}
    assert spark.words == "No updates in the last 24 hours"


# --- the history -----------------------------------------------------------------------------------------------------
def words(history: past.History) -> list[str]:
    return [f"v{entry.version.number}" if entry.version else "gap" for entry in history.entries]


@pytest.fixture
def subscription(session: McpSession) -> Subscription:
    return make_subscription(session)


def test_gaps_are_between_the_versions_where_they_began(subscription: Subscription) -> None:
    add_version(subscription, "1", minutes_ago=60)
    add_gap(subscription, began=50, ended=40, changed=True)
    add_version(subscription, "2", minutes_ago=40)
    add_gap(subscription, began=30, ended=20, changed=False)
    add_version(subscription, "3", minutes_ago=10)
    add_gap(subscription, began=5)
    assert words(past.history(subscription)) == ["gap", "v3", "gap", "v2", "gap", "v1"]


def test_every_gap_is_on_the_page_of_its_time(subscription: Subscription, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "PAGE_SIZE", 1)
    add_version(subscription, "1", minutes_ago=60)
    add_gap(subscription, began=50, ended=40)
    add_version(subscription, "2", minutes_ago=30)
    add_gap(subscription, began=20)
    first = past.history(subscription)
    second = past.history(subscription, first.older)
    assert (words(first), words(second), second.older) == (["gap", "v2"], ["gap", "v1"], None)


def test_a_page_whose_border_version_is_gone_goes_on_all_the_same(
    subscription: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "PAGE_SIZE", 1)
    for number in range(3):
        add_version(subscription, str(number), minutes_ago=60 - number)
    add_gap(subscription, began=1)
    subscription.versions.filter(number=2).delete()
    assert words(past.history(subscription, before=2)) == ["v1"]


def test_a_flapping_night_is_cut(subscription: Subscription) -> None:
    add_version(subscription, "1", minutes_ago=500)
    for number in range(past.MOST_GAPS * 12):
        add_gap(subscription, began=400 - number, ended=399.5 - number)
    history = past.history(subscription)
    assert words(history).count("gap") == past.MOST_GAPS
    assert history.hidden_gaps == past.MOST_GAPS * 11


def test_a_version_is_compared_with_the_nearest_that_is_kept(subscription: Subscription) -> None:
    for number in range(1, 5):
        add_version(subscription, f"text {number}", minutes_ago=10 - number)
    subscription.versions.filter(number=3).delete()
    item = past.version(subscription, None)
    assert item is not None
    before = past.before_version(item)
    assert before is not None
    assert (item.number, before.number) == (4, 2)
    shown = past.shown(item, before)
    assert shown.difference is not None
    assert shown.difference.summary == "1 line added, 1 removed"


def test_a_gap_between_two_compared_versions_is_reported(subscription: Subscription) -> None:
    first = add_version(subscription, "1", minutes_ago=60)
    add_gap(subscription, began=50, ended=40, changed=True)
    second = add_version(subscription, "2", minutes_ago=40)
    third = add_version(subscription, "3", minutes_ago=10)
    assert len(past.shown(second, first).gaps) == 1
    assert len(past.shown(first, third).gaps) == 1  # in the other direction too
    assert past.shown(third, second).gaps == []


def test_what_cannot_be_shown_says_why(subscription: Subscription, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = add_version(subscription, "1"), add_version(subscription, "2")
    monkeypatch.setattr(past, "SHOWN_BYTES", 3)
    assert "too large" in past.shown(second, first).missing
    monkeypatch.undo()
    payloads.erase(first.contents)
    assert "version 1 was erased" in past.shown(second, first).missing
    first.contents = payloads.store("resource", "[" * 100_000)
    assert "cannot be read" in past.contents(first).missing


def test_a_version_is_downloaded_as_it_came(subscription: Subscription) -> None:
    item = add_version(subscription, "héllo", {"uri": "b", "blob": "AAEC"}, {"uri": "c", "blob": "not base64!"})
    files = [past.file_of(item, index) for index in (0, 1, 2, 3, None)]
    assert [file and (file.name, file.data) for file in files[:3]] == [
        ("version-1-1.txt", "héllo".encode()),
        ("version-1-2.bin", b"\0\1\2"),
        ("version-1-3.bin", b"not base64!"),
    ]
    assert files[3] is None
    assert files[4] is not None
    assert files[4].name == "version-1.json"


def test_the_mark_moves_with_everything_that_a_page_shows(subscription: Subscription) -> None:
    marks = [past.mark(subscription)]
    add_version(subscription, "1")
    marks.append(past.mark(subscription))
    gap = add_gap(subscription, began=1)
    marks.append(past.mark(subscription))
    gap.ended_at, gap.changed = timezone.now(), False
    gap.save()
    marks.append(past.mark(subscription))
    subscription.deliveries.create(number=1, created_at=timezone.now())
    marks.append(past.mark(subscription))
    subscription.deliveries.update(attempts=1)
    marks.append(past.mark(subscription))
    assert len(set(marks)) == len(marks)
    assert past.mark(subscription) == marks[-1]


@pytest.mark.parametrize(
    ("state", "change", "expected"),
    [
        (SubscriptionState.LISTENING, {}, "Subscribed"),
        (SubscriptionState.REQUESTED, {}, "not confirmed by the server yet"),
        (SubscriptionState.REFUSED, {}, "refused the subscription"),
        (SubscriptionState.LOST, {}, "ended the stream"),
        (SubscriptionState.ENDED, {}, "The history is kept"),
        (SubscriptionState.WAITING, {}, "as soon as the session is ready"),
        (SubscriptionState.WAITING, {"paused": True}, "paused"),
        (SubscriptionState.WAITING, {"enabled": False}, "disabled"),
        (SubscriptionState.WAITING, {"archived_at": timezone.now()}, "archived"),
    ],
    ids=lambda value: str(value) if not isinstance(value, dict) else "-".join(value),
)
def test_every_state_says_what_was_asked_and_what_came_of_it(
    state: str, change: dict[str, Any], expected: str, session: McpSession
) -> None:
    row = make_subscription(session, state=state)
    for name, value in change.items():
        setattr(session if hasattr(session, name) else row.server, name, value)
    assert expected in past.standing(row, session)
