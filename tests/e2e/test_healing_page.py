"""Two people see the same state of a failing server at once: countdown, retry, pause, timeline, sessions."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Request, Route, expect

from tests.e2e.walk import Walk
from tests.peers.peers import peer_command
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
LATE, AGAIN = "Mended late", "Seen again"
LEFT = re.compile(r"Attempt \d+ in\s+(\d:\d\d|a moment)")


def register_failing(stack: Stack, name: str, folder: Path) -> Path:
    """Register a server that fails until the returned file exists."""
    mended = folder / "mended"
    command, arguments = peer_command("demo")
    words = " ".join([command, *arguments])
    # What a shell's script runs does not show in the command line.
    needed = [folder, ROOT / "mcpadmin" / "demo_server", *map(Path, (sys.prefix, sys.base_prefix))]
    script = f"test -e {mended} || exit 3; exec {words}"
    stack.register(name, ("/bin/sh", ["-c", script]), *(f"--read={path}" for path in needed))
    return mended


@pytest.fixture(scope="module")
def failing(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files that mend two servers. They begin to fail together, because that takes each of them half a minute."""
    return {name: register_failing(stack, name, tmp_path_factory.mktemp("failing")) for name in (LATE, AGAIN)}


def shown_failing(person: Walk, slug: str) -> None:
    person.open(f"/servers/{slug}/info/")
    person.wait_for_state("Failing")


def test_a_failing_server_counts_down_and_a_try_at_once_makes_it_ready(stack, walker, failing: dict[str, Path]) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    shown_failing(ada, "mended-late")
    bob.open("/servers/mended-late/info/")
    for person in (ada, bob):
        expect(person.page.locator("[data-next-try]")).to_contain_text(LEFT)
    shown = ada.page.locator("[data-next-try] time").inner_text()
    expect(ada.page.locator("[data-next-try] time")).not_to_have_text(shown)
    expect(ada.page.get_by_text("Failing repeatedly")).to_be_visible()
    expect(bob.page.locator("#connection-timeline")).to_contain_text("exit code 3")
    failing[LATE].touch()
    ada.page.get_by_role("button", name="Retry now").click()
    bob.wait_for_state("Ready")
    expect(bob.page.locator("#connection-timeline")).to_contain_text("Retry")
    expect(bob.page.get_by_role("button", name="Retry now")).to_be_hidden()


def test_what_a_page_could_not_fetch_again_is_fetched_again(stack, walker, failing: dict[str, Path]) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    shown_failing(ada, "seen-again")
    bob.open("/")
    needs = bob.page.locator("#overview-attention li").filter(has_text=AGAIN)
    expect(needs).to_be_visible()
    refused: list[Request] = []

    def refuse_twice(route: Route) -> None:
        if len(refused) == 2:
            route.continue_()
            return
        refused.append(route.request)
        route.abort()

    bob.complaints.allow("Failed to load resource")
    bob.page.route(f"{bob.base_url}/", refuse_twice)
    failing[AGAIN].touch()
    ada.page.get_by_role("button", name="Retry now").click()
    expect(needs).to_have_count(0)
    assert len(refused) == 2


#: as many servers as fit into the table of the overview
FILL = """
from django.contrib.auth import get_user_model
from servers.audit.record import Actor
from servers.registration import registering
from servers.registration.registering import Registration
from servers.enums import TransportKind
user = get_user_model().objects.filter(is_superuser=True).first()
for number in range(12):
    data = Registration(name=f"Filler {number}", transport=TransportKind.STDIO, command="true")
    registering.register(Actor.of_user(user), user, data, enabled=False)
"""
EMPTY = "from servers.models import Server; Server.objects.filter(name__startswith='Filler').delete()"


@pytest.fixture
def full_table(stack: Stack) -> Iterator[None]:
    stack.shell(FILL)
    yield
    stack.shell(EMPTY)


@pytest.mark.long
@pytest.mark.usefixtures("full_table")
def test_the_overview_learns_of_servers_that_it_has_no_room_for(stack, walker, tmp_path: Path) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    mended = register_failing(stack, "Out of sight", tmp_path)
    shown_failing(ada, "out-of-sight")
    bob.open("/")
    expect(bob.page.locator("[data-live-pill]")).to_have_attribute("data-state", "live")
    needs = bob.page.locator("#overview-attention li").filter(has_text="Out of sight")
    expect(needs).to_be_visible()
    expect(bob.page.locator("[data-server-row]").filter(has_text="Out of sight")).to_have_count(0)
    mended.touch()
    ada.page.get_by_role("button", name="Retry now").click()
    expect(needs).to_have_count(0)


@pytest.mark.long
def test_who_paused_a_server_is_shown_to_everybody_at_once(stack, walker) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    ada.register_stdio("Pausable", *peer_command("demo"))
    ada.wait_for_state("Ready")
    bob.open("/sessions/")
    row = bob.page.get_by_role("row").filter(has=bob.page.get_by_role("link", name="Pausable"))
    expect(row).to_contain_text("Ready")
    ada.page.get_by_role("button", name="Pause").click()
    ada.wait_for_state("Paused")
    expect(row).to_contain_text("Paused by ada")
    bob.open("/servers/pausable/info/")
    expect(bob.page.get_by_text("Paused by ada")).to_be_visible()
    bob.page.get_by_role("button", name="Resume").click()
    ada.wait_for_state("Ready")
    expect(bob.page.locator("#connection-process")).to_contain_text("Memory", timeout=20_000)
