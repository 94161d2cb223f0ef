"""*find_tool* of a bundle: which tools the words of a query lead to."""

import string
from itertools import product
from typing import Any

import pytest

from sessions.agents.catalog import search

TOOLS: list[dict[str, Any]] = [
    {"name": "wiki__deletePage", "description": "Removes a page for good."},
    {"name": "wiki__read_page", "description": "Returns the text of a page."},
    {"name": "mail__send", "title": "Send mail", "description": "Sends a message to people."},
    {"name": "mail__set", "description": "Sets a flag. Also the delete flag."},
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("delete", ["wiki__deletePage", "mail__set"]),
        ("deletes a thing", ["wiki__deletePage", "mail__set"]),
        ("PAGES", ["wiki__deletePage", "wiki__read_page"]),
        ("sends", ["mail__send"]),
        ("message", ["mail__send"]),
        ("mes", []),
        ("set", ["mail__set"]),
        ("x" * 200, []),
    ],
)
def test_a_word_finds_the_tools_that_have_it_or_one_that_begins_alike(query: str, found: list[str]) -> None:
    words = [word for word in query.split() if word not in ("a", "thing")]
    assert [one["name"] for one in search.found(TOOLS, " ".join(words), 20)] == found


def test_descriptions_of_many_words_are_searched_at_once() -> None:
    """The test would take minutes if each word of the query were compared with each of the descriptions."""
    words = ["".join(letters) for letters in product(string.ascii_lowercase[:10], repeat=4)]
    items = [{"name": f"t{number}", "description": " ".join(words)} for number in range(200)]
    query = " ".join(f"z{word}" for word in words[:80])
    assert search.found([*items, {"name": "zaaaa"}], query, 5) == [{"name": "zaaaa"}]
