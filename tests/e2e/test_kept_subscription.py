"""A subscription keeps its history while no browser is open and everything around it fails."""

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import expect

from tests.e2e.outside import tell_of_a_change
from tests.e2e.walk import Walk
from tests.peers.peers import Peer, start_peer
from tests.tools.stack import ADMIN, Stack

#: `make test` has the same over a worker, without pages: tests/sessions/subscriptions/test_subscriptions_live.py
pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]
BOARD = "peer://board"
SECONDS = 60
#: of each version from the previous one
DIFFERENCES = {
    2: "1 line added, 0 removed",
    3: "1 line added, 0 removed",
    4: "0 lines added, 1 removed",
    5: "1 line added, 0 removed",
    6: "0 lines added, 2 removed",
}
VALKEY_AGAIN = re.compile(r"valkey ready again")


@dataclass
class Watched:
    """A server of an official SDK over Streamable HTTP, with a board that the test writes to."""

    slug: str
    peer_name: str
    board: Path
    peer: Peer

    def write(self, text: str, *, told: bool) -> None:
        self.board.write_text(text)
        if told:
            tell_of_a_change(self.peer.url, BOARD)

    def restart(self) -> None:
        """Send SIGKILL, then start the server again at the same URL."""
        port = int(self.peer.url.split(":")[2].split("/")[0])
        self.peer.kill()
        self.peer = run(self.peer_name, self.board, port)


def run(peer_name: str, board: Path, port: int = 0) -> Peer:
    return start_peer(peer_name, port=port, env={"BOARD_FILE": str(board)})


@pytest.fixture
def watched(own_stack: Stack, tmp_path: Path) -> Iterator[list[Watched]]:
    """One registered server per SDK and era."""
    servers, orders = [], []
    with ExitStack() as closing:
        for peer_name, era in (("sdk1", "legacy"), ("sdk2", "legacy"), ("sdk2", "modern")):
            slug = f"{peer_name}-{era}"
            board = tmp_path / slug
            board.write_text("milk\n")
            one = Watched(slug, peer_name, board, run(peer_name, board))
            url = one.peer.url
            closing.callback(lambda one=one: one.peer.stop())
            servers.append(one)
            orders.append(("register_server", f"--user={ADMIN[0]}", f"--name={slug}", f"--era={era}", f"--url={url}"))
        # In one process, because each start of manage.py costs seconds.
        own_stack.shell(f"from django.core.management import call_command\nfor words in {orders}: call_command(*words)")
        yield servers


def subscribe_and_leave(ada: Walk, server: Watched) -> None:
    """Press the button and close the window as soon as the server has accepted the subscription."""
    person = Walk(ada.page.context.new_page(), ada.base_url, ada.complaints)
    person.open(f"/servers/{server.slug}/tools/")
    person.wait_for_state("Ready")
    person.open(f"/servers/{server.slug}/resources/?uri={BOARD}")
    with person.page.expect_response("**/subscribe/"):
        person.page.locator("[data-subscribe]").get_by_role("button", name="Subscribe").click()
    person.page.close()


VERSIONS = """SELECT MAX(v.number) AS n FROM mcp_sessions_resourceversion v
    JOIN mcp_sessions_subscription s ON s.id = v.subscription_id JOIN servers_server r ON r.id = s.server_id
    WHERE r.slug = ?"""
STATES = """SELECT s.uid, s.state FROM mcp_sessions_subscription s
    JOIN servers_server r ON r.id = s.server_id WHERE r.slug = ?"""


def kept(person: Walk, stack: Stack, servers: list[Watched], number: int) -> None:
    """Wait until `number` is every server's newest version and every subscription listens again."""

    def true() -> bool:
        newest = [stack.rows(VERSIONS, server.slug)[0]["n"] for server in servers]
        states = [[row["state"] for row in stack.rows(STATES, server.slug)] for server in servers]
        return newest == [number] * len(servers) and states == [["listening"]] * len(servers)

    person.until(true, SECONDS)


def test_a_subscription_keeps_its_history_through_kills_wipes_and_restarts_with_no_one_there(
    own_stack: Stack, watched: list[Watched], walker: Callable[..., Walk]
) -> None:
    stack, ada = own_stack, walker(own_stack, signed_in=True)
    for server in watched:
        subscribe_and_leave(ada, server)
    ada.page.goto("about:blank")
    kept(ada, stack, watched, 1)

    write(watched, "milk\nbread\n")
    kept(ada, stack, watched, 2)

    stack.kill_worker()
    write(watched, "milk\nbread\nsalt\n", told=False)
    kept(ada, stack, watched, 3)

    write(watched, "bread\nsalt\n")
    kept(ada, stack, watched, 4)

    since = len(stack.lines)
    shutil.rmtree(stack.data_dir / "valkey" / "appendonlydir")
    os.kill(stack.part("valkey-server")[0].pid, signal.SIGKILL)
    write(watched, "bread\nsalt\nrice\n")
    kept(ada, stack, watched, 5)
    stack.wait_for(VALKEY_AGAIN, SECONDS, since)

    for server in watched:
        server.restart()
    write(watched, "rice\n", told=False)
    kept(ada, stack, watched, 6)

    for server in watched:
        judge(ada, stack, server)


def write(servers: list[Watched], text: str, *, told: bool = True) -> None:
    for server in servers:
        server.write(text, told=told)


def judge(person: Walk, stack: Stack, server: Watched) -> None:
    """Check what the subscription's page shows to a person who returns."""
    page, [row] = person.page, stack.rows(STATES, server.slug)
    person.open(f"/subscriptions/{UUID(row['uid'])}/")
    history, shown = page.locator("#subscription-history"), page.locator("#subscription-version")
    expect(history.locator("li[id^=v-]")).to_have_count(6)
    unheard = history.locator("li.gap").filter(has_text="The content changed in that time.")
    expect(unheard).to_have_count(2)  # the worker was killed, and the server was
    for number, words in DIFFERENCES.items():
        history.locator(f"#v-{number} a").first.click()
        expect(shown.get_by_role("heading", name=f"Version {number}", exact=True)).to_be_visible()
        expect(shown).to_contain_text(words)
