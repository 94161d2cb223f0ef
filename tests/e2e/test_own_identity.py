"""A user switches from the shared identity to a personal credential and session, and back, in the browser."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.e2e.walk import Walk
from tests.sessions.host.whoami_server import Whoami
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]
NAME, SLUG, TOKEN = "Who am I", "who-am-i", "token-bea"
BEA = """
from django.contrib.auth.models import Permission, User
user = User.objects.create_user("bea", password={password!r})
user.user_permissions.set(Permission.objects.filter(codename__in=["view_server", "call_tool"]))
"""


@pytest.fixture
def peer() -> Iterator[Whoami]:
    server = Whoami()
    yield server
    server.stop()


def asked(person: Walk) -> str:
    """Call `whoami` and return the user that the server sees."""
    person.open_tool(SLUG, "whoami")
    earlier = person.page.locator("#results .call-slot").evaluate_all("slots => slots.map((slot) => slot.id)")
    person.run_tool()
    for uid in earlier:  # an administrator also sees other users' calls, with the same text
        expect(person.result()).not_to_have_id(uid)
    expect(person.result()).to_contain_text("You are ", timeout=30_000)
    return person.result().inner_text().partition("You are ")[2].partition(".")[0]


def test_a_person_speaks_as_themselves_and_goes_back(stack: Stack, walker: Callable[..., Walk], peer: Whoami) -> None:
    stack.shell(BEA.format(password=ADMIN[1]))
    ada, bea = walker(stack, signed_in=True), walker(stack)
    ada.fill_http(NAME, peer.url, Authorization="Bearer token-shared")
    ada.page.get_by_label("Identity").select_option("either")
    ada.save()
    ada.wait_for_state("Ready")
    by_registering = peer.opened["shared"]  # the session, and the test beside the form

    bea.open("/")
    bea.sign_in("bea", ADMIN[1])
    assert asked(bea) == "shared"
    bea.page.get_by_role("link", name="shared", exact=True).click()
    expect(bea.page.get_by_role("heading", name="You use the shared identity")).to_be_visible()
    bea.page.get_by_role("link", name="Use my own credential").click()
    bea.page.get_by_role("textbox", name="Token").fill(TOKEN)
    bea.page.get_by_role("button", name="Save and use").click()
    expect(bea.page.get_by_role("heading", name="You use your personal identity")).to_be_visible()
    assert TOKEN not in bea.page.content()
    bea.wait_for_state("Ready")

    assert (asked(bea), asked(ada)) == ("bea", "shared")
    expect(ada.page.locator("#tool-list")).to_contain_text("only_for_shared")
    expect(ada.page.locator("#tool-list")).not_to_contain_text("only_for_bea")
    expect(bea.page.locator("#tool-list")).to_contain_text("only_for_bea")
    assert (dict(peer.opened), peer.strangers) == ({"shared": by_registering, "bea": 1}, [])

    bea.open(f"/servers/{SLUG}/identity/")
    bea.page.get_by_role("link", name="Use shared identity").click()
    bea.page.get_by_role("button", name="Use shared identity").click()
    expect(bea.page.get_by_role("heading", name="You use the shared identity")).to_be_visible()
    assert asked(bea) == "shared"
    assert peer.opened["bea"] == 1

    sql = "SELECT action, actor_name, identity_name, body FROM servers_auditevent WHERE server_name = ?"
    events = stack.rows(sql, NAME)
    calls = {(row["actor_name"], row["identity_name"]) for row in events if row["action"].startswith("call:")}
    assert calls == {("bea", "bea"), ("bea", "shared"), ("ada", "shared")}
    assert not any(TOKEN in str(row["body"]) for row in events)
