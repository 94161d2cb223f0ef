"""The lists of tools, prompts and resources say when they are cut, and a search by name finds the rest."""

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.definitions.versions import store_listing
from servers.enums import DefinitionKind
from servers.models import Server
from sessions.catalog import search as listed
from tests.servers.conftest import person
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db
KEYS = {"tool": "name", "prompt": "name", "resource": "uri", "resource_template": "uriTemplate"}
NOUNS = ["tool", "prompt", "resource"]
PARAMETERS = {"tool": "tool", "prompt": "prompt", "resource": "uri", "resource_template": "template"}
LINK = re.compile(r'<a href="[^"?]*\?(?:tool|prompt|uri)=([^"&]*)')


@pytest.fixture
def server() -> Server:
    return make_session("many").server


@pytest.fixture
def client() -> Client:
    found = Client()
    found.force_login(person("vera", "view_server"))
    return found


@pytest.fixture(autouse=True)
def five_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "ENTRIES", 5)


def offer(server: Server, noun: str, *keys: str, **fields: Any) -> None:
    items = [{KEYS[noun]: key, "inputSchema": {"type": "object"}, **fields} for key in keys]
    store_listing(server, DefinitionKind(noun), items, timezone.now())


def page(client: Client, noun: str, **query: str) -> str:
    answer = client.get(f"/servers/many/{noun.removesuffix('_template')}s/", query)
    assert answer.status_code == 200
    return answer.content.decode()


def names(text: str) -> list[str]:
    """The names in the list pane."""
    return LINK.findall(text[text.index('-list">') : text.index("data-filter-empty")])


@pytest.mark.parametrize("noun", NOUNS)
def test_a_list_that_is_too_long_says_so_and_finds_the_rest_by_name(client: Client, server: Server, noun: str) -> None:
    offer(server, noun, *(f"one-{number}" for number in range(8)))
    whole = page(client, noun)
    assert names(whole)[:5] == [f"one-{number}" for number in range(5)]
    assert "Only the first 5 are listed" in whole
    found = page(client, noun, find="ONE-7")
    assert names(found)[0] == "one-7"
    assert "Only the first" not in found
    assert 'value="ONE-7"' in found


@pytest.mark.parametrize("noun", NOUNS)
def test_what_is_listed_whole_says_nothing_of_a_cut(client: Client, server: Server, noun: str) -> None:
    offer(server, noun, "a", "b")
    assert "are listed" not in page(client, noun)


@pytest.mark.parametrize("noun", NOUNS)
def test_a_search_without_a_hit_offers_the_way_back_and_keeps_the_page(
    client: Client, server: Server, noun: str
) -> None:
    offer(server, noun, "a", "b")
    text = page(client, noun, find="<nothing>")
    assert "<nothing>" not in text
    assert "data-reload-on-catalog" not in text
    assert re.search(r"0</b> of 2 match", text)
    assert "Show all" in text


def test_a_search_lives_on_in_the_addresses_of_the_list_and_chooses_its_first_hit(
    client: Client, server: Server
) -> None:
    offer(server, "tool", "alpha", "beta & co", "gamma", title="Of the tools")
    text = page(client, "tool", find="beta &")
    assert "?tool=beta%20%26%20co&amp;find=beta%20%26" in text
    assert 'data-tool="beta &amp; co"' in text


@pytest.mark.parametrize("noun", NOUNS)
def test_what_was_removed_is_reached_from_the_list_and_from_a_phone(client: Client, server: Server, noun: str) -> None:
    offer(server, noun, "stays", "goes")
    offer(server, noun, "stays")
    text = page(client, noun)
    phone = text[text.index("only-mb") :]
    address = f"/servers/many/definitions/{noun}/?key=goes"
    assert address in text[: text.index("only-mb")]
    assert address in phone
    offer(server, noun)
    assert address in page(client, noun), "nothing is offered any more"


@pytest.mark.parametrize("noun", ["tool", "prompt"])
def test_an_address_with_a_name_that_is_not_listed_shows_the_list_and_says_so(
    client: Client, server: Server, noun: str
) -> None:
    address = f"/servers/many/{noun}s/?{noun}=gone"
    before = client.get(address)
    assert (before.status_code, "data-reload-on-catalog" in before.content.decode()) == (200, True)
    offer(server, noun, "stays")
    response = client.get(address)
    text = response.content.decode()
    assert response.status_code == 404
    assert f"No {noun} with this name" in text
    assert "does not currently list “gone”" in text
    assert f"?{noun}=stays" in text
    assert "Run tool" not in text


# --- tools, which come in parts ----------------------------------------------------------------------------------------
READ, DESTRUCTIVE = {"annotations": {"readOnlyHint": True}}, {"annotations": {"destructiveHint": True}}
GROUP = re.compile(r'data-group="(\w+)"><span>\w+</span><span>(\d+)</span>')


@pytest.fixture
def parts_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "PART", 3)
    monkeypatch.setattr(listed, "ENTRIES", 2_000)


def offer_ten(server: Server) -> None:
    """In the server's order: w0 r1 d2 w3 r4 d5 w6 r7 d8 w9. As the page groups them: r1 r4 r7 w0 w3 w6 w9 d2 d5 d8."""
    items = [
        {"name": f"{'wrd'[n % 3]}{n}", "inputSchema": {"type": "object"}, **({}, READ, DESTRUCTIVE)[n % 3]}
        for n in range(10)
    ]
    store_listing(server, DefinitionKind.TOOL, items, timezone.now())


def rows_of(text: str) -> list[str]:
    return re.findall(r'<li data-filter-text="[^"]*">\s*<a href="[^"?]*\?tool=([^"&]*)', text)


def part(client: Client, **query: str) -> str:
    return page(client, "tool", **query)


@pytest.mark.usefixtures("parts_of_three")
def test_a_long_tool_list_comes_in_parts_that_together_have_each_tool_once(client: Client, server: Server) -> None:
    offer_ten(server)
    first = part(client)
    assert rows_of(first) == ["r1", "r4", "r7"]
    assert GROUP.findall(first) == [("Read", "3")]
    assert re.search(r"data-listed>3</span> of 10", first)
    assert "Show 3 more" in first
    assert "before</a>" not in first
    rest = [part(client, **{"part": "after", "from": str(start)}) for start in (3, 6, 9)]
    assert [rows_of(one) for one in rest] == [["w0", "w3", "w6"], ["w9", "d2", "d5"], ["d8"]]
    assert GROUP.findall(rest[1]) == [("Write", "4"), ("Destructive", "3")]
    assert "Show 1 more" in rest[1]
    assert "more</a>" not in rest[2]


@pytest.mark.usefixtures("parts_of_three")
def test_the_address_of_a_tool_further_down_opens_the_part_that_has_it(client: Client, server: Server) -> None:
    offer_ten(server)
    text = part(client, tool="d2")
    assert rows_of(text) == ["w9", "d2", "d5"]
    assert 'data-tool="d2"' in text
    assert re.search(r"\?from=3&amp;tool=d2", text), "the link to the part before, which needs no script"
    assert re.search(r"\?from=9&amp;tool=d2", text)
    assert rows_of(part(client, **{"tool": "d2", "from": "0"})) == ["r1", "r4", "r7"]


@pytest.mark.usefixtures("parts_of_three")
@pytest.mark.parametrize("start", ["9" * 18, "-1", "x", "4", ""])
def test_any_beginning_of_a_part_shows_a_part(client: Client, server: Server, start: str) -> None:
    offer_ten(server)
    shown = {"9" * 18: ["d8"], "4": ["w0", "w3", "w6"]}
    assert rows_of(part(client, **{"from": start})) == shown.get(start, ["r1", "r4", "r7"])


@pytest.mark.usefixtures("parts_of_three")
def test_a_search_of_a_long_tool_list_finds_what_is_in_no_part_of_the_page(client: Client, server: Server) -> None:
    offer_ten(server)
    assert "data-list-ask" in part(client)
    answer = part(client, part="list", find="D8")
    assert rows_of(answer) == ["d8"]
    assert "tool=d8&amp;find=D8" in answer
    assert "<html" not in answer
    none = part(client, part="list", find="nothing")
    assert rows_of(none) == []
    assert "No tool matches" in none


@pytest.mark.usefixtures("parts_of_three")
def test_a_phone_chooses_among_the_tools_of_all_parts(client: Client, server: Server) -> None:
    offer_ten(server)
    phone = part(client, tool="w9")
    phone = phone[phone.index('id="pick-tool"') :]
    phone = phone[: phone.index("</select>")]
    assert re.findall(r'<option value="(\w+)"', phone) == ["r1", "r4", "r7", "w0", "w3", "w6", "w9", "d2", "d5", "d8"]
    assert re.findall(r'<option value="(\w+)" selected', phone) == ["w9"]


@pytest.mark.usefixtures("parts_of_three")
def test_a_tool_list_that_fits_is_filtered_without_the_server(client: Client, server: Server) -> None:
    offer(server, "tool", "a", "b", "c")
    text = part(client)
    assert "data-list-ask" not in text
    assert "data-list-edge" not in text


@pytest.mark.parametrize("noun", ["tool", "prompt", "resource"])
@pytest.mark.parametrize(
    ("find", "rows"), [("поиск", 1), ("ПОИСК (", 1), ("поиск (а|б)", 1), ("поиск.", 0), ("echo", 1)]
)
def test_the_server_finds_words_of_any_script_in_any_case(
    client: Client, server: Server, noun: str, find: str, rows: int
) -> None:
    items = [{KEYS[noun]: key, "name": key, "inputSchema": {}} for key in ("Поиск (а|б)", "Echo", "other")]
    store_listing(server, DefinitionKind(noun), items, timezone.now())
    text = page(client, noun, find=find)
    assert f'<b class="num">{rows}</b> of 3 match' in text
    assert ("No listed" in text, f"No {noun} matches. Clear" in text) == (rows > 0, rows == 0)


# --- prompts, resources and templates, in the same parts ---------------------------------------------------------------------------
OTHERS = ["prompt", "resource", "resource_template"]
STARTS = {"prompt": "from", "resource": "from", "resource_template": "templates_from"}


@pytest.fixture(params=OTHERS)
def long(request: pytest.FixtureRequest, server: Server, parts_of_three: None) -> str:
    """The noun of a list of eight, e0 to e7."""
    noun = str(request.param)
    offer(server, noun, *(f"e{n}" for n in range(8)))
    return noun


def entries(text: str, noun: str) -> list[str]:
    """The names of the rows, in a page or in a part."""
    return re.findall(rf'<li data-filter-text="[^"]*">\s*<a href="[^"?]*\?{PARAMETERS[noun]}=([^"&]*)', text)


def test_a_long_list_comes_in_parts_that_together_have_each_entry_once(client: Client, long: str) -> None:
    first = page(client, long)
    assert entries(first, long) == ["e0", "e1", "e2"]
    assert re.search(r"data-listed>3</span> of 8", first)
    assert "before</a>" not in first
    rest = [page(client, long, **{"part": "after", STARTS[long]: str(start)}) for start in (3, 6)]
    assert [entries(one, long) for one in rest] == [["e3", "e4", "e5"], ["e6", "e7"]]
    assert "Show 2 more" in rest[0]
    assert "more</a>" not in rest[1]
    assert all("<html" not in one for one in rest)
    assert entries(page(client, long, **{"part": "before", STARTS[long]: "0"}), long) == ["e0", "e1", "e2"]


def test_the_address_of_an_entry_further_down_opens_the_part_that_has_it(client: Client, long: str) -> None:
    name = PARAMETERS[long]
    text = page(client, long, **{name: "e4"})
    assert entries(text, long) == ["e3", "e4", "e5"]
    assert re.search(rf'{name}=e4"\s+aria-current="true"', text)
    assert re.search(rf"\?{STARTS[long]}=0&amp;{name}=e4", text), "the link to the part before, which needs no script"
    assert entries(page(client, long, **{name: "e4", STARTS[long]: "6"}), long) == ["e6", "e7"]


def test_what_is_chosen_stays_marked_in_each_part(client: Client, long: str) -> None:
    for part in ("list", "after", "before"):
        text = page(client, long, **{PARAMETERS[long]: "e4", "part": part, STARTS[long]: "3"})
        assert re.findall(rf'{PARAMETERS[long]}=(\w+)"\s+aria-current="true"', text) == ["e4"]


@pytest.mark.usefixtures("parts_of_three")
def test_the_ways_between_parts_keep_a_chosen_template(client: Client, server: Server) -> None:
    offer(server, "resource", *(f"e{n}" for n in range(8)))
    template = {"uriTemplate": "memo:{n}", "name": "Memo"}
    store_listing(server, DefinitionKind.RESOURCE_TEMPLATE, [template], timezone.now())
    text = page(client, "resource", template="memo:{n}")
    assert "?from=3&amp;template=memo%3A%7Bn%7D" in text
    assert text.count('aria-current="true"') == page(client, "resource", uri="e1").count('aria-current="true"')


def test_a_search_of_a_long_list_finds_what_is_in_no_part_of_the_page(client: Client, long: str) -> None:
    assert "data-list-ask" in page(client, long)
    answer = page(client, long, part="list", find="E7")
    assert entries(answer, long) == ["e7"]
    assert "<html" not in answer
    none = page(client, long, part="list", find="nothing")
    assert entries(none, long) == []
    assert f"No {long.removesuffix('_template')} matches" in none


def test_a_phone_chooses_in_the_part_and_is_told_of_the_others(client: Client, long: str) -> None:
    phone = page(client, long, **{PARAMETERS[long]: "e4"})
    phone = phone[phone.index(f'id="pick-{PARAMETERS[long]}"') :]
    assert re.findall(r'<option value="(e\d)"', phone) == ["e3", "e4", "e5"]
    assert "3 of 8 are in this list." in phone


@pytest.mark.parametrize("noun", OTHERS)
def test_the_largest_list_is_a_page_of_ordinary_size(
    client: Client, server: Server, noun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed, "ENTRIES", 2_000)
    offer(server, noun, *(f"file:///srv/{'folder/' * 6}{n}" for n in range(2_000)), description="What it holds. " * 12)
    assert len(page(client, noun)) < 200_000
