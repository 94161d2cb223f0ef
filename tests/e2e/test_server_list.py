"""The list of servers and the overview in a browser: many servers at once, live rows, charts that lead to their calls."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.peers.peers import peer_command
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
FILL = """
from servers.models import Identity, Server
for number in range(45):
    server = Server.objects.create(slug=f"row-{number:02}", name=f"Row {number:02}", transport="stdio", command="cat", tags=["rows"],
        connection_policy="on_demand", enabled=False)
    Identity.objects.create(server=server)
"""
EMPTY = "from servers.models import Server; Server.objects.filter(slug__startswith='row-').delete()"


@pytest.fixture
def rows(stack: Stack) -> Iterator[None]:
    stack.shell(FILL)
    yield
    stack.shell(EMPTY)


@pytest.mark.usefixtures("rows")
def test_many_servers_are_enabled_at_once_and_others_see_it_live(stack, walker) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    for person in (ada, bob):
        person.open("/servers/?text=rows&sort=-name")
        expect(person.page.locator("[data-live-pill]")).to_have_attribute("data-state", "live")
    buttons = ada.page.locator("#bulk button")
    expect(buttons.first).to_be_disabled()
    kept = bob.page.get_by_label("Select Row 40")
    kept.check()
    for name in ("Row 44", "Row 43"):
        ada.page.get_by_label(f"Select {name}").check()
    expect(ada.page.get_by_text("2 selected")).to_be_visible()
    ada.page.get_by_role("button", name="Enable").click()
    expect(ada.page.get_by_text("2 servers enabled.")).to_be_visible()
    assert "text=rows&sort=-name" in ada.page.url
    for name in ("Row 44", "Row 43"):
        row = bob.page.locator("[data-server-row]").filter(has_text=name)
        expect(row.locator("[data-server-state]")).not_to_contain_text("Disabled")
    expect(kept).to_be_checked()
    ada.page.get_by_role("link", name="Next").click()
    expect(ada.page.locator("[data-server-row]")).to_have_count(5)
    ada.page.get_by_text("All 45 matching").click()
    ada.page.get_by_role("button", name="Disable…").click()
    expect(ada.page.get_by_role("heading", name="Disable 45 servers?")).to_be_visible()
    ada.page.get_by_role("button", name="Disable", exact=True).click()
    expect(ada.page.get_by_text("2 servers disabled.")).to_be_visible()
    expect(ada.page.get_by_text("43 servers unchanged.")).to_be_visible()
    events = stack.rows(
        "SELECT COUNT(*) AS n FROM servers_auditevent WHERE action = 'server:registration:disable' AND server_name LIKE 'Row %'"
    )
    assert events[0]["n"] == 2


def test_a_row_that_fails_says_why_without_a_new_page(stack, walker) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    bob.open("/servers/")
    ada.register_stdio("Breaks soon", "/bin/sh", ["-c", "exit 3"])
    bob.open("/servers/?text=Breaks&view=cards")
    row = bob.page.locator("[data-server-row]").filter(has_text="Breaks soon")
    expect(row).to_contain_text("process ended", timeout=20_000)
    row.get_by_role("link", name="Diagnose").click()
    expect(bob.page.locator("#connection-timeline")).to_contain_text("exit code 3")


@pytest.mark.long
@pytest.mark.usefixtures("rows")
def test_the_list_works_without_script(stack, walker) -> None:
    plain = walker(stack, signed_in=True, java_script_enabled=False)
    plain.open("/servers/")
    plain.page.get_by_label("Name, tag, URL or command").fill("rows")
    plain.page.get_by_role("button", name="Filter").click()
    plain.page.get_by_role("link", name="Name").click()
    expect(plain.page.locator("[data-server-row]").first).to_contain_text("Row 44")
    plain.page.get_by_label("Select Row 44").check()
    plain.page.get_by_role("button", name="Delete…").click()
    plain.page.get_by_label("Type").fill("delete 1")
    plain.page.get_by_role("button", name="Delete", exact=True).click()
    expect(plain.page.get_by_text("1 server deleted.")).to_be_visible()
    expect(plain.page.get_by_text("of 44")).to_be_visible()


@pytest.mark.long
def test_a_bar_of_the_overview_leads_to_its_calls_and_grows_with_new_ones(stack, walker) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    ada.register_stdio("Drawn", *peer_command("demo"))
    ada.wait_for_state("Ready")
    ada.open_tool("drawn", "greet")
    ada.fill_argument("name", "ada")
    ada.run_tool()
    expect(ada.result()).to_contain_text("Succeeded")
    bob.open("/?last=1h")
    expect(bob.page.locator("[data-live-pill]")).to_have_attribute("data-state", "live")
    calls = bob.page.locator("#overview-numbers .kpi").nth(1).locator(".v")
    before = int(calls.inner_text())
    chart = bob.page.locator("[data-name=calls]")
    drawn = chart.get_attribute("data-chart")
    assert drawn
    ada.run_tool()
    expect(ada.page.locator("#results .call-slot").filter(has_text="Succeeded")).to_have_count(2)
    expect(calls).to_have_text(str(before + 1))
    expect(chart).not_to_have_attribute("data-chart", drawn)
    plot = bob.page.locator("[data-chart-of=calls] .u-over")
    box = plot.bounding_box()
    assert box is not None
    plot.click(position={"x": box["width"] * 0.985, "y": box["height"] / 2})
    bob.page.wait_for_url("**/explorer/?q=since**")
    assert "in%3Acalls" in bob.page.url
