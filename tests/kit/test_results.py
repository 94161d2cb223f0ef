"""Results in real Chromium, on pages of the kit: Markdown and its source, trees and tables of JSON."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.kit import hostile_markup
from tests.kit.test_pages import faults
from tests.kit.urls import MARKED, QUESTION

Opener = Callable[..., tuple[Page, Any, Any]]


def test_markdown_is_rendered_and_its_source_is_one_click_away_on_each_page_of_the_viewer(open_page: Opener) -> None:
    page, complaints, _ = open_page()
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto("pages/results/")
    text = page.locator("#text")
    expect(text.locator(".md .md-h1")).to_have_text("Release notes")
    expect(text.get_by_role("link", name="the site")).to_have_attribute("rel", "noopener noreferrer nofollow")
    expect(text.locator(".md")).to_contain_text("the site (docs.example)")
    expect(text.get_by_role("link", name="Image: A chart")).to_have_attribute(
        "href", "https://images.example/chart.png"
    )
    expect(text.locator(".md pre .hid")).to_have_text("U+202E")
    expect(text.get_by_text("# Release notes")).to_be_hidden()
    text.get_by_role("button", name="Source").click()
    expect(text.get_by_text("# Release notes")).to_be_visible()
    page.reload()
    expect(text.get_by_text("# Release notes")).to_be_visible()
    expect(text.get_by_role("button", name="Source")).to_have_attribute("aria-pressed", "true")
    text.get_by_role("button", name="Rendered").click()
    expect(text.locator(".md")).to_be_visible()
    assert not [url for url in requested if "images.example" in url]
    assert complaints.unexpected() == []


def test_no_hostile_text_runs_loads_or_leads_anywhere_else_once_rendered(open_page: Opener) -> None:
    page, complaints, _ = open_page()
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto("pages/hostile/", wait_until="load")
    expect(page.locator(".md")).to_have_count(len(hostile_markup.texts()))
    for handler in ("mouseover", "focus", "toggle", "click"):
        page.evaluate(
            "kind => document.querySelectorAll('.md *:not(a)').forEach((e) => e.dispatchEvent(new Event(kind)))",
            handler,
        )
    assert page.evaluate("document.documentElement.dataset.ran") is None
    schemes = page.locator(".md a").evaluate_all("links => [...new Set(links.map((link) => link.protocol))]")
    assert set(schemes) <= {"http:", "https:", "mailto:"}
    foreign = page.locator(".md").evaluate_all(
        "all => all.flatMap((md) => [...md.querySelectorAll('*')]).filter((e) => e.matches('script, img, iframe, svg, style, "
        "object, form, input, base, meta, details, math, video') || [...e.attributes].some((a) => a.name.startsWith('on')))"
        ".map((e) => e.outerHTML)"
    )
    assert foreign == []
    own = page.url.split("/pages/")[0]
    assert [url for url in requested if not url.startswith(own)] == []
    assert complaints.unexpected() == []


def test_a_tree_is_searched_and_says_path_and_value_of_each_node_exactly(open_page: Opener) -> None:
    page, complaints, _ = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("pages/results/")
    expect(page.locator("html[data-json-tools=ready]")).to_be_attached()
    view = page.locator("#json")

    def copied(name: str) -> str:
        view.get_by_role("button", name=name, exact=True).click()
        expect(view.locator("[data-copied=Copied]").first).to_be_attached()
        return str(page.evaluate("navigator.clipboard.readText()"))

    expect(view.locator('[data-i="3"] > summary .jv-closed').first).to_have_text(
        '{id: 997, state: "packed", note: null, …1 more}'
    )
    search = view.get_by_role("textbox", name="Search in Orders")
    search.fill("a/12")
    expect(view.locator("[data-json-count]")).to_have_text("1 of 11")
    search.press("Enter")
    expect(view.locator("[data-json-count]")).to_have_text("2 of 11")
    expect(view.locator(".hit")).to_be_visible()
    expect(view.locator("[data-json-pointer]")).to_have_text("/orders/120/lines/0/sku")
    assert copied("JSON Pointer") == "/orders/120/lines/0/sku"
    assert copied("JSONPath") == "$['orders'][120]['lines'][0]['sku']"
    assert copied("Value") == "a/120"
    search.press("Shift+Enter")
    expect(view.locator("[data-json-count]")).to_have_text("1 of 11")
    search.fill("1234567890")
    view.locator("[data-json-tree]").focus()
    page.keyboard.press("ArrowLeft")
    assert copied("JSON Pointer") == "/a~1b~0c'd\u202e/x"
    expect(view.locator("[data-json-pointer]")).to_have_text("/a~1b~0c'd[U+202E]/x")
    expect(view.locator("[data-json-said]")).to_have_text('"x" 1 key, expanded')
    assert copied("JSONPath") == "$['a/b~c\\'d\u202e']['x']"
    assert copied("Value") == '{\n  "exact": 12345678901234567890\n}'
    view.get_by_role("button", name="Collapse all").click()
    expect(view.locator(".hit")).to_be_hidden()
    view.get_by_role("button", name="Expand all").click()
    expect(view.locator("[data-json-tree]").get_by_text('"a/129"', exact=True)).to_be_visible()
    assert complaints.unexpected() == []


def test_results_whose_tools_are_gone_say_so_once(open_page: Opener) -> None:
    page, complaints, _ = open_page()
    complaints.allow("404")
    page.route("**/js/json-view*.js", lambda route: route.fulfill(status=404))
    page.goto("pages/results/")
    told = page.get_by_text("Part of this page could not be loaded")
    expect(told).to_be_visible()
    page.evaluate("document.querySelector('main').append(document.createElement('p'))")
    page.wait_for_timeout(300)
    expect(told).to_have_count(1)


def test_characters_that_are_marked_are_themselves_in_what_is_copied(open_page: Opener) -> None:
    page, complaints, _ = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("pages/results/")
    marked = page.locator("#marked")
    expect(marked.locator(".hid").first).to_have_text("U+FEFF")
    expect(marked.locator(".hid").last).to_have_text("hidden text: AB")
    marked.get_by_role("button", name="Copy").click()
    expect(marked.locator("[data-copied=Copied]")).to_be_attached()
    assert page.evaluate("navigator.clipboard.readText()") == MARKED.replace("\r\n", "\n")
    expect(marked.locator(".hid").first).to_have_text("U+FEFF")
    assert complaints.unexpected() == []


def test_a_list_of_objects_is_a_table_that_is_sorted_paged_and_copied_without_formulas(open_page: Opener) -> None:
    page, complaints, _ = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("pages/results/")
    expect(page.locator("html[data-json-tools=ready]")).to_be_attached()
    view = page.locator("#json")
    view.get_by_role("button", name="Table").click()
    first = view.locator("tbody tr:visible").first
    expect(first).to_contain_text("1000")
    expect(view.locator("tbody tr:visible")).to_have_count(100)
    view.get_by_role("button", name="Next").click()
    expect(view.locator("[data-json-rows]")).to_have_text("101–130 of 130 rows")
    view.get_by_role("button", name="id", exact=True).press("Enter")
    expect(view.get_by_role("columnheader", name="id")).to_have_attribute("aria-sort", "ascending")
    expect(first).to_contain_text("871")
    first.locator("summary").first.click()
    expect(first.locator(".jv .s")).to_have_text('"a/129"')
    view.get_by_role("button", name="id", exact=True).click()
    expect(view.get_by_role("columnheader", name="id")).to_have_attribute("aria-sort", "descending")
    view.get_by_text("Columns", exact=False).first.click()
    view.get_by_role("checkbox", name="state").uncheck()
    expect(view.get_by_role("columnheader", name="state")).to_have_count(0)
    view.get_by_role("button", name="Copy as CSV").click()
    expect(view.locator("[data-copied=Copied]")).to_be_attached()
    lines = page.evaluate("navigator.clipboard.readText()").split("\r\n")
    assert len(lines) == 131
    assert lines[:3] == [
        f'"id","note","lines","gift","{QUESTION}"',
        '"1000","\'=1+1","[{""sku"": ""a/0""}]","",""',
        '"999","null","[{""sku"": ""a/1""}]","true","4"',
    ]
    page.reload()
    expect(view.locator("[data-json-table]")).to_be_visible()
    assert faults(page) == []
    assert complaints.unexpected() == []
