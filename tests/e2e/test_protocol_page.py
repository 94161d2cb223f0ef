"""The Protocol tab works in a real browser: messages arrive, unfold with their pair, and filters hold for what comes."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.walk import SECONDS, Walk
from tests.tools.stack import Stack

pytestmark = pytest.mark.browser
SERVER = Path(__file__).parents[1] / "sessions" / "host" / "shelf_server.py"
FLOOD = """
import time
from django.utils import timezone
from servers.models import Server
from sessions import hints
from sessions.models import WireMessage
server = Server.objects.get(slug="wired")
last = server.wire_messages.order_by("-seq").first()
began = time.monotonic()
rows = [
    WireMessage(server=server, seq=last.seq + n, position=last.position + 300 * n, at=timezone.now(), connection=1,
                transport="stdio", direction="received", kind="notification", method="notifications/flood", target=f"number {{n}}")
    for n in range(1, {count} + 1)
]
for start in range(0, {count}, 200):
    time.sleep(max(0, began + start / 2_000 - time.monotonic()))  # 2,000 a second
    WireMessage.objects.bulk_create(rows[start : start + 200])
    hints.wire_appended(server.uid, last.seq + min(start + 200, {count}))
    hints.flush()
"""
FORGET = """
from sessions.models import WireMessage
flood = WireMessage.objects.filter(method="notifications/flood").order_by("-seq")
flood.filter(seq__lt=getattr(flood.first(), "seq", 0)).delete()  # a number that was sent is never used again
"""

LISTED = """
    SELECT 1 FROM mcp_sessions_wiremessage message JOIN servers_server server ON server.id = message.server_id
    WHERE server.slug = 'wired' AND message.method = 'resources/list'
"""
WATCH = """
window.seen = { longTasks: [], shown: 0, mostInFrame: 0, mostInPage: 0, mostInBlock: 0 };
new PerformanceObserver((list) => seen.longTasks.push(...list.getEntries().map((task) => Math.round(task.duration))))
    .observe({ type: 'longtask' });
const rows = document.querySelector('[data-console-rows]');
let counted = 0;
new MutationObserver((changes) => {
    const added = changes.flatMap((change) => [...change.addedNodes]).filter((node) => node.localName === 'li').length;
    seen.shown += added;
    counted += added - changes.flatMap((change) => [...change.removedNodes]).filter((node) => node.localName === 'li').length;
    seen.mostInFrame = Math.max(seen.mostInFrame, added);
    seen.mostInPage = Math.max(seen.mostInPage, counted);
    seen.mostInBlock = Math.max(seen.mostInBlock, rows.lastElementChild.childElementCount);
}).observe(rows, { childList: true, subtree: true });
counted = rows.querySelectorAll('li').length;
"""
LAST_IS_SHOWN = "document.querySelector('[data-console-rows]').lastElementChild.lastElementChild?.textContent.includes('number 10000')"


@pytest.fixture
def ada(stack: Stack, walker: Callable[..., Walk]) -> Walk:
    person = walker(stack, signed_in=True)
    if not stack.rows("SELECT 1 FROM servers_server WHERE slug = 'wired'"):
        person.register_stdio("Wired", sys.executable, [str(SERVER)])
        person.wait_for_state("Ready")
    person.until(lambda: stack.rows(LISTED))
    stack.shell(FORGET)
    person.open("/servers/wired/protocol/")
    expect(person.page.get_by_role("status").filter(has_text="Live").first).to_be_visible()
    return person


def messages(person: Walk, words: str = "") -> Locator:
    return person.page.locator("[data-console-rows] > ol > li").filter(has_text=words)


def test_a_message_unfolds_into_a_tree_with_its_answer(ada: Walk) -> None:
    request = messages(ada, "resources/list").first
    expect(request).to_contain_text("Result")
    request.locator("summary").first.press("Enter")
    details = request.locator(".wire-details").first
    expect(details.locator(".h3x", has_text="Response")).to_be_visible()
    expect(details.locator(".jv").first).to_contain_text('"method": "resources/list"')
    expect(details.locator(".jv").last).to_contain_text('"result"')
    ada.page.reload()
    expect(details.locator(".h3x", has_text="Response"), "the address keeps the open row").to_be_visible()
    ada.page.get_by_label("Layout").select_option("time")
    messages(ada, "resources/list").filter(has_text="Result").first.hover()
    expect(ada.page.locator("[data-console-rows] > ol > li.paired")).to_have_count(2)
    messages(ada, "resources/list").first.locator("summary").first.press("Enter")
    messages(ada).get_by_role("link", name="Link to this message").click()
    expect(ada.page.get_by_role("heading", name="resources/list")).to_be_visible()
    ada.page.get_by_role("link", name="Show in the list").click()
    expect(messages(ada).last).to_contain_text("resources/list")


def test_a_reconnect_appears_while_it_happens_and_its_requests_settle_in_place(ada: Walk) -> None:
    begun = messages(ada, "resources/list")
    before = begun.count()
    ada.page.get_by_role("button", name="Reconnect").click()
    expect(begun).to_have_count(before + 1, timeout=30 * SECONDS)
    expect(begun.last).to_contain_text("Result")
    ada.page.get_by_role("link", name="Network").click()
    expect(ada.page.get_by_role("heading", name="No HTTP on this transport")).to_be_visible()
    expect(ada.page.get_by_role("heading", name="Connection timeline")).to_be_visible()


def test_filters_hold_for_what_comes_and_are_in_the_address(ada: Walk, stack: Stack) -> None:
    ada.page.get_by_label("Direction").select_option("sent")
    expect(messages(ada, "notifications/initialized")).not_to_have_count(0)
    ada.page.get_by_label("Filter by method or name").fill("resources")
    expect(messages(ada).first).to_contain_text("resources/")
    ada.until(lambda: "text=resources" in ada.page.url and "direction=sent" in ada.page.url)
    stack.shell(FLOOD.format(count=3))
    ada.page.get_by_label("Filter by method or name").fill("flood")
    expect(ada.page.get_by_role("heading", name="No matching messages")).to_be_visible()
    ada.page.get_by_label("Direction").select_option("")
    expect(messages(ada, "number 3")).to_be_visible()


@pytest.mark.long
def test_ten_thousand_messages_do_not_stop_the_page(ada: Walk, stack: Stack) -> None:
    ada.page.evaluate(WATCH)
    stack.shell(FLOOD.format(count=10_000))
    ada.until(lambda: ada.page.evaluate(LAST_IS_SHOWN), seconds=60)  # a locator's own reading would be measured
    seen = ada.page.evaluate("seen")
    print(f"{len(seen['longTasks'])} long tasks, ms: {seen['longTasks']}")
    assert seen["mostInFrame"] <= 50, seen
    assert seen["mostInPage"] <= 500 + 50, seen
    assert seen["mostInBlock"] <= 50, seen
    note = ada.page.locator("[data-console-note]")
    expect(note).to_contain_text("At most 500 messages stay in this list")
    skipped = re.search(r"([\d,]+) messages arrived too fast", note.inner_text())
    assert skipped, note.inner_text()
    assert seen["shown"] + int(skipped[1].replace(",", "")) == 10_000, (
        "each message was shown, or counted in the line that says so"
    )
