"""A tool needs more permission: the page names it, the person allows it, and the tool runs.

The authorization server is the official SDK's. It consents at once for every visitor.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.test_sign_in import NAME, SLUG, Gate, consented, signed_in
from tests.e2e.walk import Walk
from tests.peers.peers import free_port, start_peer
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def gate(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Gate]:
    """`indirect` parameter: whether the tool runs once the permission is granted, or never does."""
    log = tmp_path / "gate.log"
    env = {"PROTECTED_LOG": str(log), "PROTECTED_STEP_UP": request.param}
    peer = start_peer("protected", port=free_port(), env=env)
    yield Gate(peer.url, log)
    peer.kill()


@pytest.fixture
def ada(make_stack: Callable[..., Stack], walker: Callable[..., Walk], gate: Gate) -> Walk:
    """Signed in with the permissions that the server requested at first."""
    person = walker(make_stack(administrator=True).start(), signed_in=True)
    person.complaints.allow(f"request to another host: {gate.url.removesuffix('/mcp')}/authorize?")
    person.register_http(NAME, gate.url)
    person.wait_for_state("Sign in", 60)
    signed_in(person, gate)
    return person


def publish(person: Walk) -> None:
    person.open_tool(SLUG, "publish")
    person.fill_argument("name", "the report")
    person.run_tool()


def link(person: Walk) -> Locator:
    return person.result().get_by_role("link", name="Sign in to allow more")


def allow_more(person: Walk, gate: Gate) -> None:
    expect(person.result()).to_contain_text("The server requires more permissions (write).", timeout=30_000)
    assert person.state().inner_text().strip() == "Ready", "what was allowed before goes on"
    link(person).click()
    consented(person, gate)


@pytest.mark.parametrize("gate", ["once"], indirect=True)
def test_a_person_allows_what_a_tool_asks_for_and_it_runs(ada: Walk, gate: Gate) -> None:
    publish(ada)
    allow_more(ada, gate)
    assert gate.details("authorize", "scopes") == ["tools", "tools write"], "what was allowed before is kept"
    publish(ada)
    expect(ada.result()).to_contain_text("Published the report", timeout=30_000)
    assert (gate.events("refused_scope"), gate.events("published")) == (1, 1)
    assert gate.events("register") == 2, "the first client may request fewer permissions only"


@pytest.mark.parametrize("gate", ["never"], indirect=True)
def test_a_server_that_refuses_what_it_was_allowed_sends_no_one_round_in_a_circle(ada: Walk, gate: Gate) -> None:
    publish(ada)
    allow_more(ada, gate)
    for refused in (2, 3):
        publish(ada)
        ada.until(lambda wanted=refused: gate.events("refused_scope") == wanted)
        expect(ada.result()).to_contain_text("although the required permissions were granted (write)", timeout=30_000)
        expect(link(ada)).to_have_count(0)
    assert ada.state().inner_text().strip() == "Ready"
    assert (gate.events("refused_scope"), gate.events("authorize")) == (3, 2), "each run was sent once"
