"""The server's page and *Test connection* show how long a slow server has been starting, with its stderr live."""

import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.walk import SECONDS, Walk
from tests.peers.peers import peer_command

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]


@pytest.fixture
def ada(stack, walker):
    return walker(stack, signed_in=True)


DEMO = Path(__file__).parents[2] / "mcpadmin" / "demo_server"


def grant(ada: Walk, folder: Path) -> None:
    """What the program runs or imports does not show in its command line."""
    ada.page.get_by_label("Files it may read", exact=True).fill(str(folder))


def held_back(folder: Path) -> tuple[str, list[str]]:
    """A server that starts once the file `go` exists, and writes to stderr until then."""
    program = folder / "slow.py"
    program.write_text(
        "import os, sys, time\n"
        "number = 0\n"
        f"while not os.path.exists({str(folder / 'go')!r}):\n"
        "    number += 1\n"
        "    print(f'fetching package {number}', file=sys.stderr, flush=True)\n"
        "    time.sleep(0.5)\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    command, arguments = peer_command("demo")
    return sys.executable, [str(program), command, *arguments]


def test_the_page_counts_how_long_a_server_starts_and_shows_its_stderr_live(ada, tmp_path: Path) -> None:
    ada.fill_stdio("Slow", *held_back(tmp_path))
    grant(ada, DEMO)
    ada.save()
    starting = ada.page.locator(".starting").filter(has_text="Starting for")
    expect(starting).to_contain_text("fetching package 2", timeout=30 * SECONDS)
    expect(starting.locator("time[data-elapsed]")).to_have_text(re.compile(r"^([5-9]|\d\d) s$"), timeout=30 * SECONDS)
    expect(starting).to_contain_text("fetching package 9", timeout=30 * SECONDS)
    (tmp_path / "go").touch()
    ada.wait_for_state("Ready")
    expect(starting).to_have_count(0)


@pytest.mark.long
def test_a_connection_test_shows_the_same(ada, tmp_path: Path) -> None:
    ada.fill_stdio("Slow", *held_back(tmp_path))
    grant(ada, DEMO)
    starting = ada.test_connection().locator(".starting").filter(has_text="Starting for")
    expect(starting).to_contain_text("fetching package 4", timeout=30 * SECONDS)
    (tmp_path / "go").touch()
    expect(ada.page.locator("#test-result")).to_contain_text("Works", timeout=30 * SECONDS)
    expect(starting).to_have_count(0)


def withheld_lists(folder: Path) -> tuple[str, list[str]]:
    """A server without tools, which says so once the file `go` exists."""
    program = folder / "withheld.py"
    program.write_text(
        "import json, os, sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.peers import minimal\n"
        "minimal.METHODS['tools/list'] = lambda _: {'tools': []}\n"
        "for line in sys.stdin:\n"
        "    message = json.loads(line)\n"
        f"    while message.get('method') == 'tools/list' and not os.path.exists({str(folder / 'go')!r}):\n"
        "        time.sleep(0.1)\n"
        "    reply = minimal.answer(message)\n"
        "    if reply is not None:\n"
        "        print(json.dumps(reply), flush=True)\n"
    )
    return sys.executable, [str(program)]


@pytest.mark.long
def test_a_page_waits_for_the_first_list_and_says_when_there_is_no_tool(ada, tmp_path: Path) -> None:
    ada.fill_stdio("No tools", *withheld_lists(tmp_path))
    grant(ada, Path(__file__).parents[1])
    ada.save()
    panel = ada.page.locator("#panel")
    expect(panel.get_by_role("heading")).to_have_text("Loading tools", timeout=30 * SECONDS)
    (tmp_path / "go").touch()
    expect(panel.get_by_role("heading")).not_to_have_text("Loading tools", timeout=30 * SECONDS)
    expect(panel).to_contain_text("no tools")


#: as a view does before a redirect, but it does not leave by itself
SHOWS_A_MESSAGE = """() => {
  const shown = document.querySelector('[data-template=toast]').content.firstElementChild.cloneNode(true);
  shown.classList.add('ok');
  shown.querySelector('b').textContent = 'Signed in at example.com';
  document.querySelector('[data-toasts-polite]').append(shown);
}"""


@pytest.mark.long
def test_a_message_stays_when_the_page_reloads_for_the_first_list(ada, tmp_path: Path) -> None:
    ada.fill_stdio("Slow list", *held_back(tmp_path))
    grant(ada, DEMO)
    ada.save()
    expect(ada.page.locator(".starting").filter(has_text="Starting for")).to_be_visible(timeout=30 * SECONDS)
    ada.page.evaluate(SHOWS_A_MESSAGE)
    (tmp_path / "go").touch()
    expect(ada.page.locator("#tool-list")).to_be_visible(timeout=30 * SECONDS)
    expect(ada.page.locator(".toast.ok").filter(has_text="Signed in at example.com")).to_be_visible()
