"""The server's page and *Test connection* show how long a slow server has been starting, with its stderr live."""

import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.walk import SECONDS
from tests.peers.peers import peer_command

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]


@pytest.fixture
def ada(stack, walker):
    return walker(stack, signed_in=True)


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
    ada.register_stdio("Slow", *held_back(tmp_path))
    starting = ada.page.locator(".starting").filter(has_text="Starting for")
    expect(starting).to_contain_text("fetching package 2", timeout=30 * SECONDS)
    expect(starting.locator("time[data-elapsed]")).to_have_text("5 s", timeout=30 * SECONDS)
    expect(starting).to_contain_text("fetching package 9", timeout=30 * SECONDS)
    (tmp_path / "go").touch()
    ada.wait_for_state("Ready")
    expect(starting).to_have_count(0)


def test_a_connection_test_shows_the_same(ada, tmp_path: Path) -> None:
    ada.fill_stdio("Slow", *held_back(tmp_path))
    starting = ada.test_connection().locator(".starting").filter(has_text="Starting for")
    expect(starting).to_contain_text("fetching package 4", timeout=30 * SECONDS)
    (tmp_path / "go").touch()
    expect(ada.page.locator("#test-result")).to_contain_text("Works", timeout=30 * SECONDS)
    expect(starting).to_have_count(0)
