"""Explorer, history and overview follow other users' actions within their filters; the drawer keeps the list's place."""

import re
import sys

import pytest
from playwright.sync_api import expect

from mcpadmin.settings import DEMO_COMMAND

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]


def test_what_one_person_runs_shows_in_anothers_filtered_audit_history_and_overview(stack, walker) -> None:
    ada, bob, eve, kim = (walker(stack, signed_in=True) for _ in range(4))
    ada.register_stdio("Live review", sys.executable, DEMO_COMMAND[1:])
    ada.wait_for_state("Ready")
    uid = stack.rows("SELECT uid FROM servers_server WHERE slug = 'live-review'")[0]["uid"]
    bob.open(f"/explorer/?q=last:1h+in:calls+server:{uid}")
    expect(bob.page.get_by_text("Nothing found")).to_be_visible()
    eve.open("/servers/live-review/history/")
    expect(eve.page.get_by_text("No calls stored")).to_be_visible()
    kim.open("/")
    for person in (bob, eve, kim):
        expect(person.page.locator("[data-live-pill]")).to_contain_text("Live")
    ada.open_tool("live-review", "add")
    ada.fill_argument("a", "2")
    ada.fill_argument("b", "3")
    ada.run_tool()
    expect(ada.result()).to_contain_text("Succeeded")
    expect(eve.page.locator("#history-calls tbody tr")).to_have_count(1)
    expect(kim.page.locator("#overview-calls")).to_contain_text("add")

    rows = bob.page.locator("tr[data-sel]")
    expect(rows).to_have_count(1)
    expect(bob.page.locator("[data-live-pill]")).to_contain_text("Live")
    ada.run_tool()
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("Succeeded")
    expect(eve.page.locator("#history-calls tbody tr")).to_have_count(2)
    expect(eve.page.locator("#history-calls")).not_to_contain_text("Running")


def test_who_reads_the_table_of_a_followed_chart_stays_in_it(stack, walker) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    ada.register_stdio("Followed", sys.executable, DEMO_COMMAND[1:])
    ada.wait_for_state("Ready")
    ada.open_tool("followed", "add")
    ada.fill_argument("a", "2")
    ada.fill_argument("b", "3")
    ada.run_tool()
    expect(ada.result()).to_contain_text("Succeeded")
    uid = stack.rows("SELECT uid FROM servers_server WHERE slug = 'followed'")[0]["uid"]
    page = bob.page
    page.clock.install()
    bob.open(f"/explorer/?q=last:1h+in:calls+server:{uid}")
    chart, heading = page.locator("#histogram"), page.locator("#histogram h2")
    expect(heading).to_have_text("1 row")
    chart.get_by_text("Show as table").click()
    link = chart.locator("tbody a").first
    link.focus()
    chart.locator(".uplot").evaluate("(plot) => { plot.dataset.before = ''; }")
    ada.run_tool()
    expect(page.locator("tr[data-sel]")).to_have_count(2)
    page.clock.run_for(31_000)
    expect(heading).to_have_text("2 rows")
    expect(chart.locator("details")).to_have_attribute("open", "")
    expect(link).to_be_focused()
    expect(chart.locator(".uplot[data-before]")).to_have_count(1)
    expect(chart.get_by_role("img")).to_have_accessible_name(re.compile("^2 rows"))
    facets = page.locator("#facets")
    expect(facets.locator("details")).to_be_visible()
    page.route("**/explorer/facets/*", lambda route: route.abort())
    bob.complaints.allow("ERR_FAILED")
    ada.run_tool()
    expect(page.locator("tr[data-sel]")).to_have_count(3)
    page.clock.run_for(31_000)
    expect(heading).to_have_text("3 rows")
    expect(facets.locator("details")).to_be_visible()


def on_screen(link) -> float:
    """Its distance to the upper edge of the window; `scrollY` also changes when the chart above arrives late."""
    return link.evaluate("element => element.getBoundingClientRect().top")


def test_the_drawer_keeps_the_lists_place_and_escape_closes_it(stack, walker) -> None:
    ada = walker(stack, signed_in=True)
    stack.shell(
        "from django.db import transaction\n"
        "from servers.audit.record import *\n"
        "from servers.enums import *\n"
        "with transaction.atomic(): record_many([Event(AuditAction.USER_CHANGE, AuditOutcome.OK, SYSTEM, subject=f'n{n}')"
        " for n in range(60)])"
    )
    ada.open("/explorer/?q=last:1h+in:events+kind:permissions")
    ada.page.wait_for_load_state("networkidle")  # the chart and the filters are above the list
    # Far from the end of the page, which gets shorter when a toast goes.
    link = ada.page.locator("tr[data-sel]").nth(20).locator("a")
    link.scroll_into_view_if_needed()
    assert ada.page.evaluate("scrollY") > 0
    place = on_screen(link)
    link.click()
    expect(ada.page.locator("#detail")).to_be_visible()
    assert "sel=" in ada.page.url
    assert "permissions" in ada.page.url
    assert abs(on_screen(link) - place) < 40
    expect(ada.page.locator("tr[aria-selected=true]")).to_have_count(1)
    ada.page.keyboard.press("Escape")
    expect(ada.page.locator("#detail")).to_have_count(0)
    expect(link).to_be_focused()
    assert "sel=" not in ada.page.url
    assert abs(on_screen(link) - place) < 40
    ada.page.go_back()
    expect(ada.page.locator("#detail")).to_be_visible()
