"""The query language: what it reads, what it says where it cannot, and what it offers."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.explorer import language
from sessions.explorer.language import FIELDS, Query, QueryError, Term, Value, parse
from tests.servers.conftest import person
from tests.sessions.explorer.rows import ended_call
from tests.sessions.host.make import make_session

NOW = datetime(2026, 11, 24, 14, 30, tzinfo=ZoneInfo("Europe/Berlin"))
TODAY = datetime(2026, 11, 24, tzinfo=NOW.tzinfo)


def read(text: str) -> Query:
    return parse(text, NOW)


def unplaced(query: Query) -> list[Term]:
    return [replace(term, start=0, end=0) for term in query.terms]


def test_a_query_is_its_conditions_their_values_and_a_range() -> None:
    query = read(
        'server:github,"Git Lab" tool:create_* -way:agent duration:>2s size:>=1.5mb "acme corp" in:calls last:15m'
    )
    assert unplaced(query) == [
        Term("server", (Value("github"), Value("Git Lab"))),
        Term("tool", (Value("create_", any_end=True),)),
        Term("way", (Value("agent"),), negated=True),
        Term("duration", (Value("2s", ">", number=2_000),)),
        Term("size", (Value("1.5mb", ">=", number=1.5 * 1024**2),)),
        Term("", (Value("acme corp"),)),
    ]
    assert query.streams == {"calls"}
    assert (query.since, query.until, query.last) == (NOW - timedelta(minutes=15), None, "15m")


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("since:2026-11-23T15:00 until:2026-11-23T16:00", TODAY - timedelta(hours=9), TODAY - timedelta(hours=8)),
        ('since:"2026-11-23 15:00:30"', TODAY - timedelta(hours=9) + timedelta(seconds=30), None),
        ("since:yesterday until:yesterday", TODAY - timedelta(days=1), TODAY),
        ("since:2026-11-20 until:2026-11-22", TODAY - timedelta(days=4), TODAY - timedelta(days=1)),
        ("since:20261120 until:20261122", TODAY - timedelta(days=4), TODAY - timedelta(days=1)),
        ("since:9:30", TODAY + timedelta(hours=9, minutes=30), None),
        ("since:9:30:15", TODAY + timedelta(hours=9, minutes=30, seconds=15), None),
        ("since:2h until:1h", NOW - timedelta(hours=2), NOW - timedelta(hours=1)),
        ("since:2026-11-24T12:00Z", datetime(2026, 11, 24, 12, tzinfo=UTC), None),
    ],
)
def test_a_range_is_read_in_the_zone_of_the_reader(text: str, since: datetime, until: datetime | None) -> None:
    assert (read(text).since, read(text).until) == (since, until)


@pytest.mark.parametrize(
    "now",
    [
        datetime(2026, 3, 29, 1, 5, tzinfo=UTC),
        datetime(2026, 3, 29, 12, tzinfo=UTC),
        datetime(2026, 10, 25, 1, 5, tzinfo=UTC),
    ],
)
def test_a_relative_range_is_as_long_as_it_says_when_the_clocks_change(now: datetime) -> None:
    there = now.astimezone(NOW.tzinfo)
    for text, length in (("15m", timedelta(minutes=15)), ("24h", timedelta(hours=24)), ("2d", timedelta(days=2))):
        assert parse(f"last:{text}", there).since == parse(f"since:{text}", there).since == now - length


def test_a_range_that_begins_in_an_hour_that_is_there_twice_is_no_empty_one() -> None:
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    now = (first + timedelta(hours=1)).astimezone(NOW.tzinfo)
    query = parse("since:1h until:50m", now)
    assert (query.since, query.until) == (first, first + timedelta(minutes=10))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("user:ann sever:x", "sever:", "Unknown field “sever”. Did you mean “server”?"),
        ("http://acme", "http:", 'write "http:…" in quotes'),
        ("user: ann", "user:", "Write a value after user:, without a space"),
        ("tool:", "tool:", "Write a value after tool:"),
        ('user:ann "acme', '"acme', "This quote is not closed."),
        ("duration:2s", "duration:2s", "as in duration:>2s"),
        ("duration:>2x", "duration:>2x", "as in duration:>2s"),
        ("size:>1tb", "size:>1tb", "as in size:>1mb"),
        ("user:>ann", "user:>ann", "does not support comparisons"),
        ("outcome:bad", "outcome:bad", "one of ok, error"),
        ("user:ann -own:show", "-own:show", "Write own:show or own:only"),
        ("in:calls,letters", "in:calls,letters", "one of calls, events, logs"),
        ("in:calls -in:calls,logs", "-in:calls,logs", "Nothing is left to search"),
        ("since:soon", "since:soon", "such as 2026-11-23T15:00"),
        ("since:2026-02-30", "since:2026-02-30", "such as 2026-11-23T15:00"),
        ("last:99999999w", "last:99999999w", "too large"),
        ("last:999999w", "last:999999w", "between the years 1000 and 9000"),
        ("since:99999999999w", "since:99999999999w", "between the years 1000 and 9000"),
        ("since:0001-01-01", "since:0001-01-01", "between the years 1000 and 9000"),
        ("user:ann until:9999-12-31", "until:9999-12-31", "such as 2026-11-23T15:00"),
        ("until:9999-12-30T23:00-12:00", "until:9999-12-30T23:00-12:00", "between the years 1000 and 9000"),
        ("user:ann size:>99999999999gb", "size:>99999999999gb", "too large"),
        pytest.param("size:>" + "9" * 400, "size:>" + "9" * 400, "too large", id="size of 400 digits"),
        pytest.param("duration:<" + "9" * 31 + "s", "duration:<" + "9" * 31 + "s", "too large", id="duration"),
        ("last:1h since:2h", "since:2h", "The range is given twice"),
        ("since:1h until:2h", "until:2h", "later than since:"),
        ("user:ann -", "-", "is incomplete"),
        ("user:ann *acme", "*acme", "write acme or acme*"),
    ],
)
def test_an_error_names_its_place_and_what_to_write(text: str, place: str, words: str) -> None:
    with pytest.raises(QueryError) as error:
        read(text)
    assert text[error.value.start : error.value.end] == place
    assert words in error.value.message


@pytest.mark.parametrize(
    ("text", "streams"),
    [
        ("", set()),
        ("in:calls in:logs", {"calls", "logs"}),
        ("-in:calls", {"events", "logs"}),
        ("in:calls -in:events", {"calls"}),
        ("in:calls,messages -in:calls", {"messages"}),
        ("-in:calls -in:logs", {"events"}),
    ],
)
def test_streams_that_are_excluded_are_not_searched_and_messages_only_if_named(text: str, streams: set[str]) -> None:
    assert read(text).streams == streams


def test_a_query_has_bounds() -> None:
    with pytest.raises(QueryError, match="2,000 characters"):
        read("x" * 2_001)
    with pytest.raises(QueryError, match="40 conditions"):
        read("x " * 41)
    with pytest.raises(QueryError, match="100 values") as error:
        read(f"user:ann server:{','.join('x' * 101)}")
    assert error.value.start == len("user:ann ")


def test_a_name_that_begins_with_an_asterisk_is_found_by_its_facet_and_no_other() -> None:
    (term,) = read(read("").having("server", "*prod*")).terms
    assert term.values == (Value("*prod*"),)
    assert read('server:"*prod"').terms[0].values == (Value("prod", any_start=True),)


def test_conditions_are_added_and_taken_away() -> None:
    query = read('last:1h user:ann "acme"')
    assert query.having("server", "Git Lab") == 'last:1h user:ann acme server:"Git Lab"'
    assert query.having("outcome", "ok", negated=True) == "last:1h user:ann acme -outcome:ok"
    assert query.without("user") == "last:1h acme"


texts = st.text(min_size=1, max_size=20)
values = st.builds(Value, text=texts, any_start=st.booleans(), any_end=st.booleans())
names = st.sampled_from([field.name for field in FIELDS.values() if field.kind is language.Kind.NAME])
terms = st.builds(Term, field=names, values=st.lists(values, min_size=1, max_size=3).map(tuple), negated=st.booleans())


@given(st.lists(terms, max_size=4))
def test_the_text_of_a_query_is_read_as_the_same_query(found: list[Term]) -> None:
    query = Query(terms=tuple(found))
    again = read(query.text_form())
    assert unplaced(again) == found
    assert again.text_form() == query.text_form()


@given(st.text(max_size=60))
def test_any_text_is_read_or_explained_at_a_place_within_it(text: str) -> None:
    problem = None
    try:
        query = read(text)
    except QueryError as error:
        problem = error
    if problem is None:
        assert read(query.text_form()).text_form() == query.text_form()
    else:
        assert 0 <= problem.start <= problem.end <= max(1, len(text))


def test_a_word_that_was_renamed_is_still_read() -> None:
    assert read("kind:rights,sign-in").text_form() == "kind:permissions,sign-in"
    assert offered(None, "kind:right") == []


# --- completion ------------------------------------------------------------------------------------------------------
def offered(user: Any, text: str) -> list[str]:
    """The text with each completion, the cursor at its end."""
    return [text[: one.start] + one.insert for one in language.complete(user, text, len(text))]


def test_fields_and_fixed_values_are_offered() -> None:
    assert offered(None, "user:ann ser") == ["user:ann server:"]
    assert offered(None, "-o") == ["-outcome:", "-own:"]
    assert offered(None, "outcome:den") == ["outcome:denied"]
    assert offered(None, '"acme corp" outc') == ['"acme corp" outcome:']
    assert offered(None, "outcome:ok,err") == ["outcome:ok,error"]
    assert offered(None, "kind:sign-")[0] == "kind:sign-in"
    assert offered(None, "duration:>1") == ["duration:>1s"]
    assert offered(None, "nothing:x") == []
    assert len(offered(None, "")) == len(FIELDS)


@pytest.mark.django_db
def test_names_are_offered_to_who_may_see_them() -> None:
    make_session("github")
    make_session("gitlab")
    ann, guest = person("ann", "view_server"), person("guest")
    assert offered(ann, "server:GIT") == ["server:github", "server:gitlab"]
    assert offered(ann, 'server:"gith') == ["server:github"]
    assert offered(ann, "user:an") == offered(ann, "user:AN") == ["user:ann"]
    assert offered(ann, "identity:sh") == ["identity:shared"]
    assert offered(guest, "server:git") == offered(guest, "user:an") == offered(guest, "identity:") == []


@pytest.mark.django_db
@pytest.mark.parametrize("permission", ["view_auditevent", "manage_users"])
def test_an_account_without_a_call_is_offered_only_to_who_sees_accounts(permission: str) -> None:
    ann, amy, abe = person("ann", "view_server"), person("amy"), person("abe", "view_server", permission)
    ended_call(make_session(), user=amy)
    assert offered(ann, "user:a") == ["user:amy", "user:ann"]
    assert offered(abe, "user:a") == ["user:abe", "user:amy", "user:ann"]
