"""*find_tool* of a bundle: which tools the words of a query lead to."""

import string
import threading
from itertools import product
from typing import Any

import pytest

from servers.enums import BundleListing
from servers.models import Bundle, BundleMember
from sessions.agents.catalog import search
from tests.sessions.agents.door import Door, make_listed, token_of

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


SPOKEN: list[dict[str, Any]] = [
    {"name": "zh", "description": "查询指定城市的实时天气信息"},
    {"name": "ja", "description": "今日の天気を調べます。APIキーが必要です。"},
    {"name": "ko", "description": "도시의 날씨를 보여줍니다"},
    {"name": "th", "description": "แสดงพยากรณ์อากาศ"},
    {"name": "ru", "description": "Показывает погоду в городе"},
    {"name": "de", "description": "Ändert die Größe eines Bildes"},
    {"name": "gr", "description": "E-mail"},
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("天气", ["zh"]),
        ("天気", ["ja"]),
        ("雨", []),
        ("市", ["zh"]),
        ("api", ["ja"]),
        ("날씨", ["ko"]),
        ("อากาศ", ["th"]),
        ("погоду", ["ru"]),
        ("ГОРОДЕ", ["ru"]),
        ("Größe", ["de"]),
        ("GRÖSSE", ["de"]),
        ("A\u0308ndert", ["de"]),
    ],
)
def test_words_of_every_script_are_found(query: str, found: list[str]) -> None:
    assert [one["name"] for one in search.found(SPOKEN, query, 20)] == found


def test_descriptions_of_many_words_are_searched_at_once() -> None:
    """The test would take minutes if each word of the query were compared with each of the descriptions."""
    words = ["".join(letters) for letters in product(string.ascii_lowercase[:10], repeat=4)]
    items = [{"name": f"t{number}", "description": " ".join(words)} for number in range(200)]
    query = " ".join(f"z{word}" for word in words[:80])
    assert search.found([*items, {"name": "zaaaa"}], query, 5) == [{"name": "zaaaa"}]


def test_of_many_long_texts_only_the_beginnings_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = search._said

    def said(words: set[str], text: str) -> set[str]:
        read.append(len(text))
        return real(words, text[:200])

    monkeypatch.setattr(search, "_said", said)
    text = "delete " + "x" * 20_000
    items = [{"name": f"t{number}", "title": text, "description": text} for number in range(3_000)]
    assert len(search.found(items, "delete", 5)) == 5
    assert sum(read[1::2]) <= search.SEARCHED_IN_ALL
    assert max(read[0::2]) <= 500


def a_bundle_that_is_searched() -> None:
    bundle = Bundle.objects.create(slug="team", name="Team", listing=BundleListing.SEARCH)
    BundleMember.objects.create(bundle=bundle, server=make_listed("files").server, alias="files", tools=["*"])


@pytest.mark.django_db(transaction=True)
async def test_a_search_takes_no_time_of_other_agents(ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers decide how much text there is."""
    threads: list[threading.Thread] = []

    def found(*given: Any) -> list[dict[str, Any]]:
        threads.append(threading.current_thread())
        return []

    monkeypatch.setattr(search, "found", found)
    await door.thread(a_bundle_that_is_searched)
    token = await door.thread(token_of, ada)
    asked = door.modern(token, "team", "tools/call", {"name": "find_tool", "arguments": {"query": "echo"}})
    assert "There are 1 tools" in (await asked.response())["result"]["content"][0]["text"]
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
