"""Tags and filters work: escaping, hidden characters, bounds, words."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.template import Context, Template
from django.test import RequestFactory

from servers.kit import json_tree as _json_tree
from servers.kit.icons import UnknownIcon
from servers.kit.visible import is_typed, visible_html, visible_text
from servers.kit.words import format_bytes, format_duration, session_look


def render(source: str, **context: Any) -> str:
    return Template("{% load kit %}" + source).render(Context(context))


def test_server_text_is_escaped_even_when_it_claims_to_be_safe() -> None:
    assert render("{{ x|visible }}", x="<b>\"'&") == "&lt;b&gt;&quot;&#x27;&amp;"
    assert render("{{ x|safe|visible }}", x="<b>") == "&lt;b&gt;"
    assert render("{{ x|visible }}", x=None) == ""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a\u202eb", "U+202E"),
        ("a\u200bb", "U+200B"),
        ("\x1b]8;;http://e\x07", "U+001B"),
        ("a\x9bb", "U+009B"),
        ("a\u2066b", "U+2066"),
        ("a\ufeffb", "U+FEFF"),
        ("a\U000e0041b", "U+E0041"),
        ("a\udc80b", "U+DC80"),
    ],
)
def test_hidden_characters_are_marked_and_do_not_reach_the_page(text: str, code: str) -> None:
    shown = visible_html(text)
    assert code in shown
    assert 'class="hid"' in shown
    assert visible_text(shown) == shown
    assert code in visible_text(text)


def test_text_hidden_in_tag_characters_is_read_out() -> None:
    hidden = "".join(chr(0xE0000 + ord(c)) for c in 'say "<hi>"')
    assert "hidden text: say &quot;&lt;hi&gt;&quot;" in visible_html(f"ok{hidden}")


def test_ordinary_text_and_emoji_are_left_alone() -> None:
    for text in ("Grüße, 東京\n\ttab", "family 👨\u200d👩\u200d👧", "heart ❤\ufe0f"):
        assert visible_html(text) == text
        assert visible_text(text) == text


def test_a_line_end_of_windows_hides_nothing_and_another_carriage_return_is_marked() -> None:
    assert visible_html("a\r\nb\r\n") == "a\nb\n"
    assert "U+000D" in visible_html("a\rb")
    assert "U+000D" in visible_html("a\r\r\nb")
    assert _json_tree.Tree().render({"text": "a\r\nb"}).count("a\\r\\nb") == 2  # the tree and its preview


def test_letters_of_a_right_to_left_script_do_not_reorder_what_is_beside_them() -> None:
    assert visible_html("שלום 12") == "<bdi>שלום 12</bdi>"
    assert visible_html("a\u202eب") == f"<bdi>{visible_html('a' + chr(0x202E))}ب</bdi>"
    assert visible_html("Grüße, 東京") == "Grüße, 東京"


def test_a_name_is_confirmed_without_the_characters_that_no_one_can_type() -> None:
    for typed in ("delete_all", "delete_all\u200b", " delete_all "):
        assert is_typed(typed, "delete_all\u200b")
    assert is_typed("two words", "two \n words")
    for typed in ("", "delete", "DELETE_ALL"):
        assert not is_typed(typed, "delete_all\u200b")
    assert not is_typed("", "\u200b"), "a name of hidden characters only"
    assert is_typed("\u200b", "\u200b")


def test_a_marker_has_the_characters_that_it_stands_for() -> None:
    assert 'data-hid="200c fe0f"' in visible_html("a\u200c\ufe0fb")


def test_a_value_in_an_attribute_stays_one_attribute() -> None:
    page = render('<p title="{{ x|visible_text }}">', x='\u202e" onmouseover="alert(1)')
    assert page == '<p title="[U+202E]&quot; onmouseover=&quot;alert(1)">'


def test_a_json_tree_shows_every_kind_of_value_and_escapes_keys() -> None:
    tree = render("{% json_tree x %}", x={"<img onerror=1>": [1, 2.5, True, None, "s", {}, []]})
    assert "<img" not in tree
    assert "&lt;img onerror=1&gt;" in tree
    for words in ("2.5", "true", "null", "&quot;s&quot;", "{}", "[]", "7 items"):
        assert words in tree


def test_a_json_tree_is_cut_at_200_children_a_step_and_5000_nodes_in_all() -> None:
    tree = _json_tree.Tree().render(list(range(450)))
    assert "Show 250 more" in tree
    assert "Show 50 more" in tree
    assert tree.count("<details") == tree.count("</details>")
    huge = _json_tree.Tree().render([list(range(100)) for _ in range(1000)])
    assert huge.count('class="nu"') <= _json_tree.NODES
    assert "more, not shown here" in huge
    assert huge.count("<details") == huge.count("</details>")


def test_a_long_string_is_cut_with_a_way_to_see_it_and_a_deep_value_ends() -> None:
    assert "show all, 1,000 characters" in _json_tree.Tree().render("x" * 1000)
    value: Any = 1
    for _ in range(90):
        value = [value]
    assert "nested too deeply to show" in _json_tree.Tree().render(value)


def test_a_timestamp_is_utc_and_machine_readable() -> None:
    at = datetime(2026, 11, 20, 14, 32, 7, 981000, tzinfo=UTC)
    page = render('{% timestamp at "exact" %}{% timestamp none %}', at=at, none=None)
    assert 'datetime="2026-11-20T14:32:07.981Z" data-time="exact"' in page
    assert ">2026-11-20 14:32:07 UTC</time>" in page
    assert page.endswith("—</span>")
    assert render("{% timestamp at %}", at="2026-11-20T15:32:07+01:00").count("2026-11-20T14:32:07.000Z") == 1


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (0, "0 ms"),
        (0.4, "<1 ms"),
        (812, "812 ms"),
        (999.6, "1.00 s"),
        (1240, "1.24 s"),
        (9996, "10.0 s"),
        (30000, "30.0 s"),
        (59960, "1 min 00 s"),
        (125000, "2 min 05 s"),
        (3_840_000, "1 h 04 min"),
        (532_800_000, "6 d 04 h"),
    ],
)
def test_durations_are_said_in_the_unit_that_fits(milliseconds: float, words: str) -> None:
    assert format_duration(milliseconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (612, "612 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (4100, "4.1 kB"),
        (999_600, "1.0 MB"),
        (8_388_608, "8.4 MB"),
        (5 * 10**12, "5000 GB"),
    ],
)
def test_sizes_are_said_in_the_unit_that_fits(count: int, words: str) -> None:
    assert format_bytes(count) == words


def test_a_condition_explains_a_session_that_is_not_ready() -> None:
    assert session_look("connecting", "backing_off").word == "Retrying"
    assert session_look("disconnected", "sign_in_again").word == "Sign in again"
    assert session_look("ready", "failing").word == "Ready"
    assert session_look("disconnected").tone == ""
    assert session_look("someday").word == "Someday"


def test_a_query_keeps_what_is_not_changed() -> None:
    request = RequestFactory().get("/audit/?server=a&kind=call&before=9")
    context = {"request": request, "older": 5}
    assert render("{% query_with before=older kind=None %}", **context) == "server=a&amp;before=5"


def test_an_icon_without_a_name_is_hidden_and_an_unknown_one_is_an_error() -> None:
    assert 'aria-hidden="true"' in render('{% icon "check" %}')
    assert 'role="img" aria-label="Read-only"' in render('{% icon "eye" "Read-only" %}')
    with pytest.raises(UnknownIcon):
        render('{% icon "no-such-icon" %}')
