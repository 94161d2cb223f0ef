"""Results in real Chromium, on pages of the kit: Markdown and its source, trees and tables of JSON."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.kit import hostile_markup

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
