"""The explorer in a browser: keyboard, chart, live list, no script."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Route, expect

from tests.e2e.conftest import cookies_of_a_sign_in
from tests.e2e.explorer_rows import SEED
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
FEW = 1_500


@pytest.fixture(scope="module")
def filled(stack: Stack) -> Stack:
    stack.shell(SEED.format(calls=FEW))
    return stack


def test_the_keyboard_completes_a_query_and_walks_through_rows_and_their_details(filled: Stack, walker) -> None:
    ada = walker(filled, signed_in=True)
    ada.open("/explorer/?q=last:24h+in:calls")
    page = ada.page
    page.keyboard.press("/")
    page.keyboard.press("End")
    page.keyboard.type(" outc")
    expect(page.get_by_role("option", name=re.compile("outcome:"))).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.type("err")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#query")).to_have_value("last:24h in:calls outcome:error ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("list", name="Conditions")).to_contain_text("outcome:error")
    rows = page.locator("tr[data-sel]")
    first, second = (rows.nth(place).get_attribute("data-sel") for place in (0, 1))
    page.locator("body").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(f"#detail[data-detail='{first}']")).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(page.locator(f"#detail[data-detail='{second}']")).to_be_visible()
    expect(page.locator("tr[aria-selected=true]")).to_have_attribute("data-sel", second)
    assert f"sel={second}" in page.url
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_have_count(0)
    expect(page.locator(f"tr[data-sel='{second}'] a").first).to_be_focused()
    page.go_back()
    expect(page.locator("#detail")).to_be_visible()


def test_a_row_that_is_left_stays_left_and_keeps_the_focus(filled: Stack, walker) -> None:
    ada = walker(filled, signed_in=True)
    ada.open("/explorer/?q=last:24h+in:calls")
    page, detail = ada.page, ada.page.locator("#detail")
    first, second = (page.locator("tr[data-sel]").nth(place).locator("a").first for place in (0, 1))
    first.click()
    expect(detail).to_be_visible()
    page.go_back()
    expect(detail).to_have_count(0)
    expect(first).to_be_focused()

    first.click()
    expect(detail).to_be_visible()
    held: list[Route] = []
    address = re.compile(r"/explorer/rows/\w+/\d+/")
    page.route(address, lambda route: held.append(route))
    second.click()
    ada.until(lambda: bool(held))
    page.keyboard.press("Escape")
    expect(detail).to_have_count(0)
    with page.expect_response(address):
        held[0].continue_()
    page.wait_for_timeout(200)
    expect(detail).to_have_count(0)
    assert "sel=" not in page.url


def test_a_completion_takes_the_place_of_the_word_behind_letters_that_a_browser_counts_twice(
    filled: Stack, walker
) -> None:
    ada = walker(filled, signed_in=True)
    ada.open("/explorer/?q=")
    page = ada.page
    page.keyboard.press("/")
    page.keyboard.insert_text('"🚀🚀🚀" outc')
    expect(page.get_by_role("option", name=re.compile("outcome:"))).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#query")).to_have_value('"🚀🚀🚀" outcome:')


def test_suggestions_for_an_earlier_text_are_not_offered_for_a_new_one(filled: Stack, walker) -> None:
    ada = walker(filled, signed_in=True)
    ada.open("/explorer/?q=")
    page, query = ada.page, ada.page.locator("#query")
    query.focus()
    expect(page.get_by_role("option", name=re.compile("outcome:"))).to_be_visible()
    page.route(re.compile(r"/complete/"), lambda route: None)  # no newer ones arrive
    page.keyboard.insert_text("OUT")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.insert_text("er space")
    expect(page.get_by_role("listbox")).to_be_hidden()
    page.keyboard.press("Tab")
    expect(query).to_have_value("OUTer space")


@pytest.mark.long
def test_dragging_over_the_chart_selects_that_range_and_a_facet_narrows_it(filled: Stack, walker) -> None:
    ada = walker(filled, signed_in=True)
    ada.open("/explorer/?q=last:24h+in:calls")
    chart = ada.page.locator("#histogram .u-over")
    box = chart.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    ada.page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    ada.page.mouse.down()
    ada.page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=5)
    ada.page.mouse.up()
    ada.page.wait_for_url("**since%3A**")
    value = ada.page.locator("#query").input_value()
    since, until = (datetime.fromisoformat(text) for text in re.findall(r"(?:since|until):(\S+)", value))
    assert timedelta(hours=2) <= until - since <= timedelta(hours=4)
    assert value.endswith("in:calls")
    ada.page.locator("#facets").get_by_role("link", name=re.compile("Github API")).first.click()
    expect(ada.page.locator("#query")).to_have_value(f'{value} server:"Github API"')
    servers = ada.page.locator("tr[data-sel] td:nth-of-type(4)").all_inner_texts()
    assert set(servers) == {"Github API"}


def test_the_list_follows_what_happens_and_counts_it_while_paused(filled: Stack, walker) -> None:
    ada = walker(filled, signed_in=True)
    cookies_of_a_sign_in(filled)  # a list with a row in it, whatever signed in before the rows were seeded
    ada.open("/explorer/?q=last:24h+in:events+kind:sign-in")
    expect(ada.page.locator("[data-live-pill]")).to_contain_text("Live")
    rows = ada.page.locator("tr[data-sel]")
    count = rows.count()
    cookies_of_a_sign_in(filled)
    expect(rows).to_have_count(count + 1)
    expect(ada.page.locator("tr.new")).to_have_count(1)
    ada.page.get_by_role("button", name="Live", exact=True).click()
    cookies_of_a_sign_in(filled)
    newer = ada.page.get_by_role("button", name="1 newer")
    expect(newer).to_be_visible()
    expect(rows).to_have_count(count + 1)
    newer.click()
    expect(rows).to_have_count(count + 2)
    ada.page.get_by_role("button", name="Live", exact=True, pressed=False).click()
    cookies_of_a_sign_in(filled)
    expect(rows).to_have_count(count + 3)


def test_the_focus_stays_where_it_was_when_the_list_moves_on(filled: Stack, walker) -> None:
    ada = walker(filled, signed_in=True)
    ada.open("/explorer/?q=last:24h+in:events")
    expect(ada.page.locator("[data-live-pill]")).to_contain_text("Live")
    page, rows = ada.page, ada.page.locator("tr[data-sel]")
    newest = rows.first.get_attribute("data-sel")
    for focused in (page.locator(f"tr[data-sel='{newest}'] a").first, page.locator("#explorer-list .scroll")):
        top = rows.first.get_attribute("data-sel")
        focused.focus()
        cookies_of_a_sign_in(filled)
        expect(rows.first).not_to_have_attribute("data-sel", top)
        expect(focused).to_be_focused()


def test_a_chart_that_stays_open_moves_on_with_its_numbers(filled: Stack, walker) -> None:
    ada = walker(filled, signed_in=True)
    ada.open("/explorer/charts/")
    chosen = ada.page.evaluate(MOVED)
    assert chosen == [7_200 + 5 * 60, 7_200 + 6 * 60], "a bar of the new numbers, where one of the old ones was"


#: draws ten one-minute bars, replaces them by those two hours later, and clicks into the middle of the sixth
MOVED = """async () => {
    const { stackedBars } = await import('/static/js/time-chart.js');
    const slot = document.createElement('div');
    slot.style.cssText = 'position: fixed; inset: 0 auto auto 0; width: 800px; z-index: 9999';
    document.body.append(slot);
    const bars = (start) => ({ start, step: 60, series: [{ name: 'ok', label: 'Succeeded', counts: Array(10).fill(3) }] });
    let chosen = null;
    const chart = stackedBars(slot, bars(0), { onBar: (from, to) => { chosen = [from, to]; } });
    const drawn = () => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)));
    await drawn();
    chart.update(bars(7200));
    await drawn();
    const over = slot.querySelector('.u-over');
    const { left, top, width, height } = over.getBoundingClientRect();
    const at = { bubbles: true, clientX: left + width * 0.55, clientY: top + height * 0.9 };
    for (const kind of ['mouseenter', 'mousemove', 'mousedown', 'mouseup', 'click']) over.dispatchEvent(new MouseEvent(kind, at));
    return chosen;
}"""


def test_the_first_row_of_a_list_that_was_empty_is_in_the_chart_too(filled: Stack, walker) -> None:
    newcomer = ("newcomer", ADMIN[1])
    filled.shell(
        f"from django.contrib.auth.models import User; User.objects.create_user({newcomer[0]!r}, password={newcomer[1]!r})"
    )
    ada = walker(filled, signed_in=True)
    ada.open("/explorer/?q=last:24h+in:events+kind:sign-in+user:newcomer")
    chart = ada.page.locator("#histogram")
    expect(chart).to_contain_text("No rows in this range.")
    expect(ada.page.locator("[data-live-pill]")).to_contain_text("Live")
    cookies_of_a_sign_in(filled, newcomer)
    expect(ada.page.locator("tr[data-sel]")).to_have_count(1)
    expect(chart.get_by_role("heading", name="1 row")).to_be_visible()
    expect(chart.locator("canvas")).to_be_visible()


@pytest.mark.long
def test_an_exact_range_and_columns_are_chosen_and_kept_in_a_shared_view(filled: Stack, walker) -> None:
    ada = walker(filled, signed_in=True, timezone_id="Europe/Berlin")
    ada.open("/explorer/?q=last:24h+in:calls+outcome:error")
    ada.page.locator(".qbar summary").first.click()
    ada.page.get_by_label("From", exact=True).fill("2026-01-01T01:00:00")
    ada.page.get_by_label("To", exact=True).fill("2026-01-01T00:00:00")
    ada.page.get_by_role("button", name="Apply").click()
    expect(ada.page.get_by_text("The end must be later")).to_be_visible()
    ada.page.get_by_label("To", exact=True).fill("2036-01-01T00:00:00")
    ada.page.get_by_role("button", name="Apply").click()
    expected = "since:2026-01-01T00:00:00Z until:2035-12-31T23:00:00Z in:calls outcome:error"
    expect(ada.page.locator("#query")).to_have_value(expected)
    ada.page.locator("summary[aria-label=Columns]").click()
    ada.page.get_by_label("Size", exact=True).check()
    ada.page.get_by_role("checkbox", name="Server", exact=True).uncheck()
    ada.page.get_by_role("button", name="Apply").click()
    expect(ada.page.get_by_role("columnheader", name="Size")).to_be_visible()
    expect(ada.page.get_by_role("columnheader", name="Server")).to_have_count(0)
    ada.page.get_by_text("Views", exact=True).click()
    ada.page.get_by_label("Save this query as").fill("Errors with sizes")
    ada.page.get_by_label("Share with everyone").check()
    ada.page.get_by_role("button", name="Save").click()
    expect(ada.page.get_by_text("saved and shared")).to_be_visible()
    ada.open("/explorer/")
    ada.page.get_by_text("Views", exact=True).click()
    ada.page.get_by_role("link", name="Errors with sizes", exact=True).click()
    expect(ada.page.locator("#query")).to_have_value(expected)
    expect(ada.page.get_by_role("columnheader", name="Size")).to_be_visible()


def test_times_of_other_years_have_their_year_and_none_is_rounded_up_to_the_next_unit(filled: Stack, walker) -> None:
    ada = walker(filled, signed_in=True)
    ada.open("/explorer/?q=since:2024-10-01+until:2024-10-31+in:calls")
    expect(ada.page.locator("summary time").first).to_contain_text("2024")
    past, future = (datetime.now(UTC) - timedelta(minutes=59.6), datetime.now(UTC) + timedelta(hours=23.7))
    wanted = [
        ("exact", datetime(2024, 10, 1, 14, 3, 22, 120_000, UTC), "1 Oct 2024, 14:03:22.120"),
        ("minute", datetime.now(UTC), re.compile(r"^\d+ \w+, \d\d:\d\d$")),
        ("relative", past, "59 min ago"),
        ("relative", future, "in 1 day"),
    ]
    for form, at, words in wanted:
        ada.page.evaluate(
            "([form, at]) => { const time = document.createElement('time'); time.dataset.time = form;"
            " time.dateTime = at; time.id = `painted-${form}`; document.getElementById(time.id)?.remove();"
            " document.querySelector('main').append(time); }",
            [form, at.isoformat()],
        )
        expect(ada.page.locator(f"#painted-{form}")).to_have_text(words)


def test_a_bar_of_the_charts_opens_its_calls(filled: Stack, walker) -> None:
    ada = walker(filled, signed_in=True)
    ada.open("/explorer/charts/")
    chart = ada.page.locator("[data-chart] .u-over")
    box = chart.bounding_box()
    assert box is not None
    chart.click(position={"x": box["width"] * 0.5, "y": box["height"] * 0.8})
    ada.page.wait_for_url("**/explorer/?q=since**")
    expect(ada.page.locator("tr[data-sel]").first).to_be_visible()


def test_without_script_the_page_lists_filters_opens_and_pages(filled: Stack, walker) -> None:
    plain = walker(filled, signed_in=True, java_script_enabled=False)
    plain.open("/explorer/?q=last:24h+in:calls")
    rows = plain.page.locator("tr[data-sel]")
    expect(rows).to_have_count(50)
    before = rows.first.get_attribute("data-sel")
    plain.page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(50)
    assert rows.first.get_attribute("data-sel") != before
    plain.page.locator("#query").fill("last:24h in:calls tool:create_issue")
    plain.page.locator("#query").press("Enter")
    expect(rows.first).to_contain_text("create_issue")
    rows.first.get_by_role("link").click()
    expect(plain.page.locator("#detail")).to_contain_text("order_id")
