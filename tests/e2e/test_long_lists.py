"""Long lists: the parts of 602 tools by search, address, keys and without scripts, those of 250 resources and prompts, and
choices among many servers."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.walk import Walk
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
FORMS = str(Path(__file__).with_name("form_server.py"))
LAST = 599
ENTRIES = 250
NAMES = ["shout", "order", *(f"tool-{number:02}" for number in range(LAST + 1))]


@pytest.fixture
def ada(stack: Stack, walker: Callable[..., Walk]) -> Walk:
    """The server is ready, and she is on the page of its tools."""
    person = walker(stack, signed_in=True)
    if not stack.rows("SELECT slug FROM servers_server WHERE slug = 'many'"):
        stack.register("Many", (sys.executable, [FORMS, str(LAST + 1), str(ENTRIES)]))
    person.open("/servers/many/tools/")
    person.wait_for_state("Ready")
    return person


def rows(page: Page) -> Locator:
    return page.locator("#tool-rows li")


def listed(page: Page) -> list[str]:
    return page.locator("#tool-rows li .ell").all_inner_texts()


def focused(page: Page) -> Locator:
    return page.locator("#tool-rows a:focus .ell")


def test_the_search_finds_the_last_of_602_tools_and_runs_it(ada: Walk) -> None:
    page = ada.page
    expect(page.get_by_text("100 of 602", exact=True)).to_be_visible()
    search = page.get_by_role("searchbox", name="Search tools").first
    search.fill(f"tool-{LAST}")
    expect(rows(page)).to_have_count(1)
    search.fill("no such tool")
    expect(page.get_by_text("No tool matches. Clear the search to see all.")).to_be_visible()
    search.fill("")
    expect(rows(page)).to_have_count(100)
    search.fill(f"tool-{LAST}")
    expect(rows(page)).to_have_count(1)
    rows(page).get_by_role("link").click()
    expect(page).to_have_url(re.compile(rf"\?tool=tool-{LAST}&find=tool-{LAST}$"))
    expect(page.get_by_role("status").filter(has_text="Live").first).to_be_visible()
    ada.fill_argument("text", "from the end")
    ada.run_tool()
    expect(ada.result()).to_contain_text("FROM THE END")
    search.fill("tool-3")
    expect(rows(page)).to_have_count(100)
    search.press("Enter")
    expect(page.locator("[data-tool='tool-30']")).to_be_visible()


@pytest.mark.long
def test_a_deep_link_shows_its_tool_in_the_list_and_the_parts_around_it_join_it(ada: Walk) -> None:
    page = ada.page
    ada.open_tool("many", "tool-450")
    expect(page.locator("#tool-rows a[aria-current]")).to_be_in_viewport()
    assert listed(page) == NAMES[400:500]
    page.get_by_role("link", name="Show 100 before").click()
    expect(rows(page)).to_have_count(200)
    page.get_by_role("link", name="Show 100 more").click()
    expect(rows(page)).to_have_count(300)
    page.get_by_role("link", name="Show 2 more").click()
    expect(page.get_by_text("302 of 602", exact=True)).to_be_visible()
    assert listed(page) == NAMES[300:]
    expect(page.locator("#tool-rows [data-group]")).to_have_count(1)
    expect(page.locator("[data-tool='tool-450']")).to_be_visible()


@pytest.mark.long
def test_the_keys_go_on_over_the_edge_of_a_part_in_both_directions(ada: Walk) -> None:
    page = ada.page
    ada.open_tool("many", "tool-150")
    rows(page).last.get_by_role("link").focus()
    page.keyboard.press("j")
    expect(focused(page)).to_have_text(NAMES[200])
    expect(focused(page)).to_be_in_viewport()
    page.keyboard.press("k")
    expect(focused(page)).to_have_text(NAMES[199])
    rows(page).first.get_by_role("link").focus()
    page.keyboard.press("k")
    expect(focused(page)).to_have_text(NAMES[99])
    expect(focused(page)).to_be_in_viewport()
    assert listed(page) == NAMES[:300]


@pytest.mark.long
def test_without_scripts_the_links_between_the_parts_keep_the_open_tool(
    ada: Walk, stack: Stack, walker: Callable[..., Walk]
) -> None:
    page = walker(stack, signed_in=True, java_script_enabled=False).page
    page.goto(f"{ada.base_url}/servers/many/tools/?tool=tool-07")
    page.get_by_role("link", name="Show 100 more").click()
    page.get_by_role("link", name="Show 100 more").click()
    assert listed(page) == NAMES[200:300]
    expect(page.locator("[data-tool='tool-07']")).to_be_visible()
    page.get_by_role("link", name="Show 100 before").click()
    assert listed(page) == NAMES[100:200]


@pytest.mark.long
def test_a_phone_chooses_the_last_of_602_tools(ada: Walk, stack: Stack, walker: Callable[..., Walk]) -> None:
    page = walker(stack, signed_in=True, viewport={"width": 390, "height": 844}).page
    page.goto(f"{ada.base_url}/servers/many/tools/")
    page.get_by_label("Tool", exact=True).select_option(f"tool-{LAST}")
    expect(page.locator(f"[data-tool='tool-{LAST}']")).to_be_visible()


# --- resources and prompts, in the same parts ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("noun", "name"), [("resource", "memo:{:03}"), pytest.param("prompt", "prompt-{:03}", marks=pytest.mark.long)]
)
def test_resources_and_prompts_come_in_parts_and_a_search_finds_them_all(ada: Walk, noun: str, name: str) -> None:
    page = ada.page
    ada.open(f"/servers/many/{noun}s/")
    entries = page.locator(f"#{noun}-list [data-list-rows] li")
    expect(entries).to_have_count(100)
    page.get_by_role("link", name="Show 100 more").click()
    page.get_by_role("link", name="Show 50 more").click()
    expect(page.get_by_text("250 of 250", exact=True)).to_be_visible()
    expect(entries).to_have_count(ENTRIES)
    expect(page.get_by_role("link", name="more")).to_have_count(0)
    ada.open(f"/servers/many/{noun}s/")
    search = page.get_by_role("searchbox", name=f"Search {noun}s").first
    search.fill("249")
    expect(entries).to_have_count(1)
    search.press("Enter")
    expect(page).to_have_url(re.compile("find=249"))
    entries.get_by_role("link").click()
    parameter = "uri" if noun == "resource" else noun
    expect(page).to_have_url(re.compile(rf"\?{parameter}={name.format(249).replace(':', '(:|%3A)')}&find=249$"))
    ada.open(f"/servers/many/{noun}s/?{parameter}={name.format(120)}")
    expect(page.locator(f"#{noun}-list a[aria-current]")).to_be_in_viewport()
    expect(page.get_by_role("link", name="Show 100 before")).to_be_attached()


@pytest.mark.long
def test_the_parts_of_templates_and_of_resources_join_their_own_list(ada: Walk, stack: Stack) -> None:
    page = ada.page
    stack.register("Templated", (sys.executable, [FORMS, "1", "130", "120"]))
    # Opened between the two lists, the page shows that the list changed and does not move by itself.
    of_the_server = "SELECT 1 FROM servers_definition JOIN servers_server ON servers_server.id = server_id"
    both = f"{of_the_server} WHERE slug = 'templated' AND (key LIKE 'note-%' OR key LIKE 'memo:%')"
    ada.until(lambda: len(stack.rows(both)) == 250, seconds=60)
    ada.open("/servers/templated/resources/")
    ada.wait_for_state("Ready")
    resources, templates = (page.locator(f"#resource-list [data-list-rows] details >> nth={n}") for n in (0, 1))
    templates.get_by_role("link", name="Show 20 more").click()
    expect(templates.locator("li")).to_have_count(120)
    expect(templates.get_by_text("120 of 120", exact=True)).to_be_visible()
    expect(resources.get_by_text("100 of 130", exact=True)).to_be_visible()
    resources.get_by_role("link", name="Show 30 more").click()
    expect(resources.locator("li")).to_have_count(130)
    expect(resources.get_by_text("130 of 130", exact=True)).to_be_visible()
    templates.get_by_role("link").last.click()
    expect(page).to_have_url(re.compile("template=note-119"))
    expect(page.get_by_label("day")).to_be_visible()
    expect(templates.locator("a[aria-current]")).to_be_in_viewport()
    expect(resources.locator("a[aria-current]")).to_have_count(0)


# --- choices among many servers ----------------------------------------------------------------------------------------
MADE = """
from servers.models import Server
rows = [Server(slug=f"chosen-{n}", name=f"Chosen {n}", transport="stdio", command="/bin/true", enabled=False) for n in range(20)]
Server.objects.bulk_create(rows)
"""
REMOVED = """
from servers.models import Server
Server.objects.filter(slug__startswith="chosen-").delete()
"""


@pytest.fixture(scope="module")
def twenty_servers(stack: Stack) -> Iterator[None]:
    stack.shell(MADE)
    yield
    stack.shell(REMOVED)


@pytest.mark.usefixtures("twenty_servers")
def test_an_export_of_two_of_many_servers_takes_a_filter_and_one_box(stack: Stack, walker: Callable[..., Walk]) -> None:
    person = walker(stack, signed_in=True)
    page = person.page
    person.open("/servers/export/")
    everything = page.get_by_label("All", exact=True)
    shown = page.locator("#export-servers label:visible")
    everything.uncheck()
    expect(page.locator("#export-servers input:checked")).to_have_count(0)
    page.get_by_label("Filter servers").fill("chosen 1")
    expect(shown).to_have_count(11)
    page.get_by_label("Filter servers").fill("nothing like it")
    expect(page.get_by_text("No matching servers.")).to_be_visible()
    page.get_by_label("Filter servers").fill("chosen 17")
    page.get_by_label("Filter servers").press("Enter")
    expect(shown).to_have_count(1)
    everything.check()
    page.get_by_label("Filter servers").fill("")
    page.get_by_label("Chosen 3", exact=True).check()
    expect(page.locator("#export-servers input:checked")).to_have_count(2)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    assert set(json.loads(download.value.path().read_text())["mcpServers"]) == {"Chosen 3", "Chosen 17"}


@pytest.mark.usefixtures("twenty_servers")
def test_a_long_choice_of_servers_is_filtered_by_name(stack: Stack, walker: Callable[..., Walk]) -> None:
    person = walker(stack, signed_in=True)
    page = person.page
    person.open("/agents/tokens/new/")
    page.get_by_label("Filter by name").fill("chosen 17")
    expect(page.locator("#id_servers option:visible")).to_have_count(1)
    page.get_by_label("Servers", exact=True).select_option(label="Chosen 17")
    page.get_by_label("Filter by name").fill("")
    page.locator("#id_name").fill("Filtered")
    page.get_by_role("button", name="Create token").click()
    expect(page.get_by_text("/mcp/chosen-17").first).to_be_visible()
