"""People answer the requests of real servers (the official SDKs) in separate browsers."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.walk import Walk
from tests.peers.peers import peer_command
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
PASSWORD = "a long passphrase 42"


def register(stack: Stack, name: str, peer: str, era: str) -> str:
    """Register a stdio server on the command line. Returns its slug."""
    return stack.register(name, peer_command(peer), "--era", era)


def colleague(stack: Stack, name: str, *permissions: str) -> None:
    stack.shell(
        "from django.contrib.auth.models import Permission, User\n"
        f"user = User.objects.create_user({name!r}, password={PASSWORD!r})\n"
        f"user.user_permissions.set(Permission.objects.filter(codename__in={list(permissions)!r}))"
    )


@pytest.fixture(scope="module")
def robin_exists(stack: Stack) -> None:
    colleague(stack, "robin", "view_server", "answer_question")


@pytest.fixture
def two(stack: Stack, walker: Callable[..., Walk], robin_exists: None) -> tuple[Walk, Walk]:
    """Ada, who has all permissions, and robin, who may answer, in separate browsers."""
    ada, robin = walker(stack, signed_in=True), walker(stack, signed_in=True, account=("robin", PASSWORD))
    robin.open("/")  # where a toast reaches him
    return ada, robin


def start(stack: Stack, person: Walk, slug: str, tool: str) -> Locator:
    """Run a tool whose server sends a request back. Returns the card of the waiting call."""
    offered = (
        "SELECT 1 FROM servers_definition d JOIN servers_server s ON s.id = d.server_id WHERE s.slug = ? AND d.key = ?"
    )
    person.until(lambda: bool(stack.rows(offered, slug, tool)), 60)
    person.open_tool(slug, tool)
    person.run_tool()
    card = person.result()
    expect(card).to_contain_text("Waiting for an answer", timeout=30_000)
    return card


def answer_the_toast(person: Walk, words: str) -> None:
    """Follow the toast, on whatever page it appears, to the request."""
    toast = person.page.locator(".toast").filter(has_text=words)
    toast.get_by_role("link", name="Answer").click()
    expect(person.page.get_by_role("heading", level=1)).to_contain_text(words)


def press(person: Walk, name: str) -> None:
    person.page.locator("#answer-form .answers").get_by_role("button", name=name, exact=True).click()


PEERS = {
    "sdk1-legacy": ("sdk1", "legacy"),
    "sdk2-legacy": ("sdk2", "legacy"),
    "sdk2-input-required": ("sdk2", "modern"),
}


def peers(short: str) -> list[Any]:
    """All of PEERS; all but `short` are long. Each way of asking has its short form in one of the tests."""
    return [pytest.param(*peer, id=name, marks=[pytest.mark.long] * (name != short)) for name, peer in PEERS.items()]


def eras(short: str) -> list[Any]:
    return [pytest.param(era, marks=[pytest.mark.long] * (era != short)) for era in ("legacy", "modern")]


@pytest.mark.parametrize(("peer", "era"), peers(short="sdk2-input-required"))
def test_a_second_admin_answers_an_elicitation_while_the_first_watches_the_call_finish(
    stack: Stack, two: tuple[Walk, Walk], peer: str, era: str
) -> None:
    ada, robin = two
    slug = register(stack, f"Cities {peer} {era}", peer, era)
    card = start(stack, ada, slug, "ask_person")
    answer_the_toast(robin, f"Input request from “Cities {peer} {era}”")
    expect(robin.page.locator("#question-body")).to_contain_text("Which city do you mean?")
    robin.page.locator("[name='arg:/city']").fill("Oslo")
    press(robin, "Send")
    expect(robin.page.locator("[data-question-over]")).to_contain_text("Answered by robin")
    expect(card).to_contain_text("accept: Oslo, 1")
    expect(card).to_contain_text("Succeeded")
    expect(robin.page.locator("[data-question-over]")).to_contain_text("Delivered to the server")


@pytest.mark.parametrize(("peer", "era"), peers(short="sdk2-legacy"))
def test_a_second_admin_answers_for_the_model_while_the_first_watches_the_call_finish(
    stack: Stack, two: tuple[Walk, Walk], peer: str, era: str
) -> None:
    ada, robin = two
    slug = register(stack, f"Models {peer} {era}", peer, era)
    card = start(stack, ada, slug, "ask_model")
    answer_the_toast(robin, f"Sampling request from “Models {peer} {era}”")
    expect(robin.page.locator("#question-body")).to_contain_text("What is 2 + 2?")
    robin.page.get_by_label("Answer", exact=False).first.fill("Four, I believe.")
    robin.page.get_by_label("Model").fill("robin himself")
    press(robin, "Send")
    expect(card).to_contain_text("robin himself says: Four, I believe.")
    expect(card).to_contain_text("Succeeded")


def test_an_answer_that_is_half_typed_is_neither_sent_nor_lost_by_accident(
    stack: Stack, two: tuple[Walk, Walk]
) -> None:
    ada, robin = two
    slug = register(stack, "Half answers", "sdk2", "legacy")
    card = start(stack, ada, slug, "ask_model")
    answer_the_toast(robin, "Sampling request from “Half answers”")
    asked: list[str] = []
    robin.page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    robin.page.get_by_label("Answer", exact=False).first.fill("Four, I bel")
    robin.page.get_by_role("link", name="Inbox").first.click(no_wait_after=True)
    expect(robin.page.locator("#answer-form")).to_be_visible()
    assert asked == ["beforeunload"]
    crumb = robin.page.locator(".crumb a")
    with robin.page.context.expect_page() as opened:
        crumb.press("Control+Enter")
    opened.value.close()
    expect(robin.page.locator("#answer-form")).to_be_visible()
    card.get_by_role("button", name="Cancel").click()
    expect(robin.page.get_by_role("article", name="Your answer")).to_contain_text("Four, I bel")


@pytest.mark.parametrize("era", eras(short="modern"))
def test_a_form_of_every_kind_is_refused_with_reasons_then_sent_with_its_defaults(
    stack: Stack, two: tuple[Walk, Walk], era: str
) -> None:
    ada, robin = two
    robin.complaints.allow("422")
    slug = register(stack, f"Pizza {era}", "asking", era)
    card = start(stack, ada, slug, "pizza")
    answer_the_toast(robin, f"Input request from “Pizza {era}”")
    robin.page.locator("[name='arg:/name']").fill("B")
    robin.page.locator("[name='arg:/count']").fill("99")
    press(robin, "Send")
    summary = robin.page.locator("[data-sf-errors]")
    expect(summary).to_contain_text("2 fields need attention")
    expect(summary).to_be_focused()
    expect(robin.page.locator("[name='arg:/count']")).to_have_value("99")
    robin.page.locator("[name='arg:/name']").fill("Bob")
    robin.page.locator("[name='arg:/count']").fill("4")
    press(robin, "Send")
    expect(card).to_contain_text("accept: count=4, name='Bob', size='l', spicy=False")


@pytest.mark.parametrize(
    ("button", "word"),
    [
        pytest.param("Decline", "decline", id="decline", marks=pytest.mark.long),
        pytest.param("Cancel", "cancel", id="cancel", marks=pytest.mark.long),
    ],
)
def test_declining_and_cancelling_reach_the_server_as_what_they_are(
    stack: Stack, two: tuple[Walk, Walk], button: str, word: str
) -> None:
    ada, robin = two
    slug = register(stack, f"No {word}", "asking", "legacy")
    card = start(stack, ada, slug, "pizza")
    answer_the_toast(robin, f"Input request from “No {word}”")
    press(robin, button)
    expect(card).to_contain_text("Succeeded")
    expect(card.get_by_role("tabpanel").first).to_contain_text(word)


@pytest.mark.parametrize("era", eras(short="legacy"))
def test_an_address_is_shown_whole_and_opened_by_nothing_but_a_click(
    stack: Stack, two: tuple[Walk, Walk], era: str
) -> None:
    ada, robin = two
    slug = register(stack, f"Visits {era}", "asking", era)
    card = start(stack, ada, slug, "visit")
    answer_the_toast(robin, f"“Visits {era}” wants you to open a link")
    asked: list[str] = []
    robin.page.on("request", lambda request: asked.append(request.url))
    expect(robin.page.locator("[data-address]")).to_have_text("https://pizza.example.com/pay?order=7")
    expect(robin.page.locator("[data-address] mark")).to_have_text("pizza.example.com")
    robin.page.wait_for_timeout(500)
    assert not [url for url in asked if "pizza" in url], "nobody clicked yet"
    link = robin.page.locator("a[data-visit]")
    expect(link).to_have_attribute("href", "https://pizza.example.com/pay?order=7")
    expect(link).to_have_attribute("target", "_blank")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    press(robin, "Done")
    expect(card).to_contain_text("accept")
    expect(card).to_contain_text("Succeeded")


@pytest.mark.long
def test_a_call_that_is_refused_until_an_address_was_visited_goes_through_after_the_visit(
    stack: Stack, two: tuple[Walk, Walk]
) -> None:
    ada, robin = two
    slug = register(stack, "Locked", "asking", "legacy")
    card = start(stack, ada, slug, "unlock")
    answer_the_toast(robin, "“Locked” wants you to open a link")
    press(robin, "Done")
    expect(card).to_contain_text("unlocked")


def test_everybody_sees_what_waits_and_the_faster_answer_wins(
    stack: Stack, walker: Callable[..., Walk], two: tuple[Walk, Walk]
) -> None:
    ada, robin = two
    slug = register(stack, "Contended", "asking", "legacy")
    card = start(stack, ada, slug, "pizza")
    expect(ada.page.locator("[data-inbox-of]")).to_contain_text("1 in the inbox")
    expect(ada.page.get_by_role("navigation", name="Main").get_by_role("link", name="Inbox")).to_be_visible()
    expect(ada.page.locator("[data-inbox-count]")).to_have_attribute("aria-label", "1 waiting")
    ada.until(lambda: ada.page.title().startswith("(1) "))
    assert "favicon-waiting" in ada.page.locator("link[rel=icon]").get_attribute("href")
    robin.open("/inbox/")
    robin.page.locator("#inbox-open").get_by_role("link", name="Input request from “Contended”").click()
    robin.page.get_by_role("button", name="Assign to me").click()
    expect(robin.page.locator("#question-head")).to_contain_text("Assigned to robin")
    expect(card).to_contain_text("Assigned to robin")

    robin.page.locator("[name='arg:/name']").fill("half typed")
    card.get_by_role("link", name="Open the request").click()
    ada.page.get_by_role("button", name="Assign to me").click()
    expect(robin.page.locator("#question-head")).to_contain_text("Assigned to ada")
    expect(robin.page.locator("[name='arg:/name']")).to_have_value("half typed")
    ada.page.locator("[name='arg:/name']").fill("Ada")
    press(ada, "Send")
    over = robin.page.locator("[data-question-over]")
    expect(over).to_contain_text("Answered by ada")
    expect(robin.page.locator("#answer-form")).to_have_count(0)
    expect(robin.page.locator("#question-body")).to_contain_text("have permission to read the answer")
    expect(ada.page.locator("[data-inbox-count]")).to_be_hidden()
    assert not ada.page.title().startswith("(")
    assert "favicon-waiting" not in ada.page.locator("link[rel=icon]").get_attribute("href")


@pytest.mark.long
def test_a_call_that_is_cancelled_takes_its_question_back_from_the_open_page(
    stack: Stack, two: tuple[Walk, Walk]
) -> None:
    ada, robin = two
    slug = register(stack, "Given up", "asking", "legacy")
    card = start(stack, ada, slug, "pizza")
    answer_the_toast(robin, "Input request from “Given up”")
    card.get_by_role("button", name="Cancel").click()
    # The server decides which of the two comes first: it withdraws its request, or our call ends before that.
    over = re.compile("The server withdrew the request|The call ended before anyone answered")
    expect(robin.page.locator("[data-question-over]")).to_contain_text(over)
    expect(robin.page.locator("#answer-form")).to_have_count(0)
