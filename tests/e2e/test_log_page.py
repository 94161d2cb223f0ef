"""The log page of a server works in a real browser: it follows, pauses, filters, and counts hidden lines."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.walk import SECONDS, Walk
from tests.tools.stack import Stack

pytestmark = pytest.mark.browser
SERVER = Path(__file__).parents[1] / "sessions" / "host" / "shelf_server.py"
WRITE = """
from django.db.models import Max
from django.utils import timezone
from servers.models import Server
from sessions import hints
from sessions.models import LogLine
server = Server.objects.get(slug="{slug}")
last = server.log_lines.aggregate(last=Max("seq"))["last"] or 0
lines = [
    LogLine(server=server, seq=last + n, at=timezone.now(), source="{source}", level="{level}", text=f"{words} {{n}}")
    for n in range(1, {count} + 1)
]
LogLine.objects.bulk_create(lines)
hints.log_appended(server.uid, last + {count})
hints.flush()
"""


#: A frame counts as painted only once the test says so.
SLOW_PAINT = """
window.paints = [];
window.MessageChannel = class {
  port1 = {};
  port2 = { postMessage: () => window.paints.push(() => this.port1.onmessage()) };
};
"""
PAINT = "() => { while (window.paints.length) window.paints.shift()(); }"

#: Keep the newest line, emptied, so that the numbers continue as they do in the real log.
FORGET = """
from sessions.models import LogLine
newest = LogLine.objects.filter(server__slug="quiet").order_by("-seq").first()
if newest is not None:
    LogLine.objects.filter(server=newest.server, seq__lt=newest.seq).delete()
    LogLine.objects.filter(pk=newest.pk).update(text="before", level="debug", source="host", call_uid=None)
"""


def write(stack: Stack, words: str, count: int = 1, level: str = "info", source: str = "server") -> None:
    stack.shell(WRITE.format(slug="quiet", words=words, count=count, level=level, source=source))


@pytest.fixture
def ada(stack: Stack, walker: Callable[..., Walk]) -> Walk:
    person = walker(stack, signed_in=True)
    if not stack.rows("SELECT 1 FROM servers_server WHERE slug = 'quiet'"):
        person.register_stdio("Quiet", sys.executable, [str(SERVER)])
        person.wait_for_state("Ready")
    stack.shell(FORGET)
    write(stack, "early", 60)
    person.open("/servers/quiet/logs/")
    expect(person.page.get_by_role("status").filter(has_text="Live").first).to_be_visible()
    return person


def lines(person: Walk, words: str = "") -> Locator:
    return person.page.locator("[data-console-rows] li").filter(has_text=words)


def at_end(person: Walk) -> bool:
    script = "box => box.scrollHeight - box.scrollTop - box.clientHeight < 24"
    return bool(person.page.locator("[data-console-box]").evaluate(script))


def test_it_opens_at_the_newest_line_and_follows(ada: Walk, stack: Stack) -> None:
    ada.until(lambda: at_end(ada))
    write(stack, "late", 3)
    expect(lines(ada, "late 3")).to_be_visible()
    ada.until(lambda: at_end(ada))
    assert lines(ada).last.inner_text().endswith("late 3")


def test_whoever_looks_back_is_left_alone_and_told_how_many_are_newer(ada: Walk, stack: Stack) -> None:
    ada.page.locator("[data-console-box]").evaluate("box => { box.scrollTop = 0 }")
    write(stack, "late", 7)
    expect(ada.page.get_by_text("7 newer lines")).to_be_visible()
    expect(lines(ada, "late")).to_have_count(0)
    ada.page.get_by_role("button", name="Jump to latest").click()
    expect(lines(ada, "late")).to_have_count(7)
    ada.until(lambda: at_end(ada))
    expect(ada.page.get_by_text("newer line")).to_be_hidden()


def test_paused_it_counts_what_arrives_and_shows_it_all_when_it_goes_on(ada: Walk, stack: Stack) -> None:
    ada.page.get_by_role("button", name="Pause", exact=True).last.click()
    write(stack, "late", 5)
    resume = ada.page.get_by_role("button", name="Resume")
    expect(resume).to_contain_text("5 new")
    expect(lines(ada, "late")).to_have_count(0)
    resume.click()
    expect(lines(ada, "late")).to_have_count(5)


@pytest.mark.long
def test_lines_that_arrive_while_a_frame_is_painted_are_counted_too(ada: Walk, stack: Stack) -> None:
    frames: list[str] = []
    ada.page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(str(frame))))
    ada.page.add_init_script(SLOW_PAINT)
    ada.page.reload()
    resume = ada.page.get_by_role("button", name="Resume")
    ada.page.get_by_role("button", name="Pause", exact=True).last.click()
    write(stack, "first", 2)
    expect(resume).to_contain_text("2 new")
    write(stack, "second", 3)
    ada.until(lambda: any("second 3" in frame for frame in frames))
    ada.page.evaluate(PAINT)
    expect(resume).to_contain_text("5 new")


def test_at_most_500_lines_stay_in_the_page_and_the_rest_is_counted(ada: Walk, stack: Stack) -> None:
    ada.page.get_by_role("button", name="Pause", exact=True).last.click()
    write(stack, "flood", 1_200)
    expect(ada.page.get_by_role("button", name="Resume")).to_contain_text("1,200 new", timeout=20 * SECONDS)
    ada.page.get_by_role("button", name="Resume").click()
    expect(lines(ada).last).to_contain_text("flood 1200")
    assert 450 <= lines(ada).count() <= 500
    expect(ada.page.get_by_text("700 lines arrived too fast to be shown")).to_be_visible()


def test_filters_look_into_the_database_and_hold_for_what_comes(ada: Walk, stack: Stack) -> None:
    write(stack, "grave", 2, level="error", source="stderr")
    ada.page.get_by_label("Level", exact=True).select_option("warning")
    expect(lines(ada)).to_have_count(2)
    assert "level=warning" in ada.page.url
    write(stack, "light", 1)
    write(stack, "grave again", 1, level="critical", source="stderr")
    expect(lines(ada)).to_have_count(3)
    ada.page.get_by_label("Source").select_option("server")
    expect(ada.page.get_by_role("heading", name="No matching lines")).to_be_visible()
    ada.page.get_by_label("Level", exact=True).select_option("")
    ada.page.get_by_label("Filter by text").fill("early 6")
    expect(lines(ada)).to_have_count(2)
    ada.page.reload()
    expect(lines(ada)).to_have_count(2)
    expect(ada.page.get_by_label("Filter by text")).to_have_value("early 6")


def test_a_hostile_line_stays_text_when_it_arrives(ada: Walk, stack: Stack) -> None:
    write(stack, "<img src=x onerror=alert(1)>\\u202e")
    expect(lines(ada, "<img src=x onerror=alert(1)>[U+202E]")).to_be_visible()
    assert ada.page.locator("[data-console-rows] img").count() == 0


@pytest.mark.long
def test_without_script_the_filter_is_a_form_and_older_lines_are_a_link(
    stack: Stack, ada: Walk, walker: Callable[..., Walk]
) -> None:
    write(stack, "many", 300)
    plain = walker(stack, signed_in=True, java_script_enabled=False)
    plain.open("/servers/quiet/logs/?text=many")
    expect(lines(plain)).to_have_count(200)
    plain.page.get_by_role("link", name="Older lines").click()
    expect(lines(plain)).to_have_count(100)
    assert lines(plain).first.inner_text().endswith("many 1")
    plain.page.get_by_role("link", name="Latest lines").click()
    expect(lines(plain)).to_have_count(200)
