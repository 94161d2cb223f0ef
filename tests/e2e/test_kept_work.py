"""Input is not lost: not to an expired sign-in, a missing connection, another tool, or a reload."""

import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from mcpadmin.settings import DEMO_COMMAND
from tests.e2e.conftest import cookies_of, cookies_of_a_sign_in
from tests.e2e.walk import Walk
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
FORMS = str(Path(__file__).with_name("form_server.py"))
TICKETS = "**/live/ticket/"
SESSION = "**/accounts/session/"
NOTE = "notes_for_the_person_who_packs_this_order_in_the_warehouse"


@pytest.fixture
def ada(stack: Stack, walker: Callable[..., Walk]) -> Walk:
    return walker(stack, signed_in=True)


@pytest.fixture
def own_sign_in(stack: Stack, ada: Walk) -> None:
    """Ada's sign-in is not the one of other tests, so that it can end."""
    ada.page.context.add_cookies(cookies_of_a_sign_in(stack))


ENDS_THE_SIGN_IN = pytest.mark.usefixtures("own_sign_in")


@pytest.fixture
def forms(stack: Stack, ada: Walk) -> str:
    """The slug of a server with many forms, once it is ready."""
    if not stack.rows("SELECT slug FROM servers_server WHERE slug = 'forms'"):
        stack.manage("register_server", "--user", ADMIN[0], "--name", "Forms", "--", sys.executable, FORMS)
    ada.open("/servers/forms/tools/")
    ada.wait_for_state("Ready")
    return "forms"


def end_sign_in(stack: Stack, person: Walk) -> None:
    [key] = [cookie["value"] for cookie in person.page.context.cookies() if cookie["name"].endswith("session")]
    assert key not in {cookie["value"] for cookie in cookies_of(stack, ADMIN)}, "other tests need it"
    stack.write("DELETE FROM django_session WHERE session_key = ?", key)
    person.complaints.allow("401")


def dialog(person: Walk) -> Locator:
    return person.page.get_by_role("dialog", name="Your sign-in has expired")


def sign_in_beside(person: Walk) -> None:
    expect(dialog(person)).to_be_visible()
    dialog(person).get_by_label("Password").fill(ADMIN[1])
    dialog(person).get_by_role("button", name="Sign in", exact=True).click()
    expect(dialog(person)).to_be_hidden()


def pill(person: Walk) -> Locator:
    return person.page.locator("[data-live-pill]")


def calls_with(stack: Stack, words: str) -> int:
    """The number of recorded calls whose arguments contain these words."""
    sql = "SELECT count(*) AS n FROM mcp_sessions_call c JOIN servers_payload p ON p.id = c.arguments_id WHERE p.text LIKE ?"
    return int(stack.rows(sql, f"%{words}%")[0]["n"])


def new_words() -> str:
    return f"words {uuid4().hex[:8]}"


# --- an expired sign-in ------------------------------------------------------------------------------------------------
@pytest.mark.long
@ENDS_THE_SIGN_IN
def test_a_tool_that_is_run_after_the_sign_in_ended_runs_once_when_the_person_signed_in_beside_it(
    stack: Stack, ada: Walk, forms: str
) -> None:
    words = new_words()
    ada.open_tool(forms, "shout")
    ada.fill_argument("text", words)
    end_sign_in(stack, ada)
    expect(pill(ada)).to_have_attribute("data-state", "signed-out")
    ada.run_tool()
    sign_in_beside(ada)
    expect(ada.result()).to_contain_text(words.upper())
    assert ada.page.url.endswith(f"/servers/{forms}/tools/?tool=shout")
    expect(ada.page.locator("[name='arg:/text']")).to_have_value(words)
    expect(pill(ada)).to_have_attribute("data-state", "live")
    assert calls_with(stack, words) == 1


@pytest.mark.long
@ENDS_THE_SIGN_IN
def test_who_declines_to_sign_in_keeps_what_was_typed_and_reads_that_nothing_was_sent(
    stack: Stack, ada: Walk, forms: str
) -> None:
    words = new_words()
    ada.open_tool(forms, "shout")
    ada.fill_argument("text", words)
    end_sign_in(stack, ada)
    expect(pill(ada)).to_have_attribute("data-state", "signed-out")
    ada.run_tool()
    dialog(ada).get_by_role("button", name="Cancel").click()
    expect(ada.page.locator("[data-call-refused]")).to_contain_text("Nothing was sent")
    expect(ada.page.locator("[name='arg:/text']")).to_have_value(words)
    assert calls_with(stack, words) == 0


@ENDS_THE_SIGN_IN
def test_a_run_that_is_cancelled_while_the_sign_in_is_checked_is_not_sent(stack: Stack, ada: Walk, forms: str) -> None:
    words = new_words()
    ada.open_tool(forms, "shout")
    ada.fill_argument("text", words)
    end_sign_in(stack, ada)
    expect(pill(ada)).to_have_attribute("data-state", "signed-out")
    release = block(ada.page, SESSION)
    ada.run_tool()
    ada.page.locator(".runbar").get_by_role("button", name="Cancel").click()
    release()
    sign_in_beside(ada)
    expect(ada.page.locator("[data-call-refused]")).to_contain_text("Cancelled. Nothing was sent.")
    assert calls_with(stack, words) == 0


@ENDS_THE_SIGN_IN
def test_a_sign_in_that_cannot_be_checked_leaves_the_run_unsent(stack: Stack, ada: Walk, forms: str) -> None:
    ada.complaints.allow("ERR_FAILED")
    ada.open_tool(forms, "shout")
    ada.fill_argument("text", new_words())
    end_sign_in(stack, ada)
    expect(pill(ada)).to_have_attribute("data-state", "signed-out")
    ada.page.route(SESSION, lambda route: route.abort())
    ada.run_tool()
    expect(ada.page.locator("[data-call-refused]")).to_contain_text("Nothing was sent and your input is kept.")


@pytest.mark.long
@ENDS_THE_SIGN_IN
def test_a_wrong_password_is_said_in_the_dialog(stack: Stack, ada: Walk, forms: str) -> None:
    ada.complaints.allow("400")
    ada.open_tool(forms, "shout")
    end_sign_in(stack, ada)
    expect(pill(ada)).to_have_attribute("data-state", "signed-out")
    pill(ada).get_by_role("link").click()
    dialog(ada).get_by_label("Password").fill("not the password")
    dialog(ada).get_by_label("Password").press("Enter")
    expect(dialog(ada).get_by_role("alert")).to_contain_text("not correct")
    sign_in_beside(ada)
    expect(pill(ada)).to_have_attribute("data-state", "live")


@pytest.mark.long
@ENDS_THE_SIGN_IN
def test_an_added_item_and_a_saved_form_wait_for_the_sign_in_too(stack: Stack, ada: Walk, forms: str) -> None:
    ada.open_tool(forms, "order")
    ada.fill_argument("title", "kept title")
    end_sign_in(stack, ada)
    ada.page.get_by_role("button", name="Add item").click()
    sign_in_beside(ada)
    expect(ada.page.locator("[name='arg:/tags/0']")).to_be_visible()
    expect(ada.page.locator("[name='arg:/title']")).to_have_value("kept title")

    words = new_words()
    ada.open(f"/servers/{forms}/settings/")
    ada.page.get_by_label("Notes").fill(words)
    end_sign_in(stack, ada)
    ada.page.get_by_role("button", name="Save changes").click()
    sign_in_beside(ada)
    expect(ada.page.get_by_text("Saved.", exact=True)).to_be_visible()
    expect(ada.page.get_by_label("Notes")).to_have_value(words)


@pytest.mark.long
@ENDS_THE_SIGN_IN
def test_a_sign_in_in_another_tab_is_enough(stack: Stack, ada: Walk, forms: str) -> None:
    words = new_words()
    ada.open_tool(forms, "shout")
    ada.fill_argument("text", words)
    end_sign_in(stack, ada)
    expect(pill(ada)).to_have_attribute("data-state", "signed-out")
    ada.run_tool()
    with ada.page.context.expect_page() as opened:
        dialog(ada).get_by_role("link", name="Open the sign-in page in a new tab").click()
    tab = opened.value
    tab.locator("input[name=login]").fill(ADMIN[0])
    tab.locator("input[name=password]").fill(ADMIN[1])
    tab.locator("input[name=password]").press("Enter")
    expect(tab.get_by_role("heading", name="Signed in")).to_be_visible()
    expect(ada.result()).to_contain_text(words.upper())
    assert calls_with(stack, words) == 1


@pytest.mark.long
@ENDS_THE_SIGN_IN
def test_a_fragment_is_sent_again_once_the_person_signed_in_beside_it(stack: Stack, ada: Walk) -> None:
    if not stack.rows("SELECT slug FROM servers_server WHERE slug = 'demo-to-subscribe'"):
        command = tuple(DEMO_COMMAND)
        stack.manage("register_server", "--user", ADMIN[0], "--name", "Demo to subscribe", "--", *command)
    ada.open("/servers/demo-to-subscribe/resources/?uri=demo://readme")
    ada.wait_for_state("Ready")
    ada.page.reload()
    end_sign_in(stack, ada)
    ada.page.get_by_role("button", name="Subscribe").click()
    sign_in_beside(ada)
    expect(ada.page.get_by_role("button", name="Unsubscribe")).to_be_visible()
    subscribed = stack.rows("SELECT count(*) AS n FROM mcp_sessions_subscription WHERE uri = 'demo://readme'")
    assert subscribed[0]["n"] == 1
    ada.page.get_by_role("button", name="Unsubscribe").click()
    expect(ada.page.get_by_role("button", name="Subscribe", exact=True)).to_be_visible()


@ENDS_THE_SIGN_IN
def test_a_row_of_the_explorer_and_a_resource_of_a_template_wait_for_the_sign_in_too(stack: Stack, ada: Walk) -> None:
    if not stack.rows("SELECT slug FROM servers_server WHERE slug = 'demo-to-read'"):
        stack.manage("register_server", "--user", ADMIN[0], "--name", "Demo to read", "--", *DEMO_COMMAND)
    ada.open("/servers/demo-to-read/resources/")
    ada.wait_for_state("Ready")
    ada.open("/explorer/?q=last:1h")
    row = ada.page.locator("tr[data-sel] a").first
    expect(row).to_be_visible()
    end_sign_in(stack, ada)
    row.click()
    sign_in_beside(ada)
    expect(ada.page.locator("#detail")).to_be_visible()
    ada.open("/servers/demo-to-read/resources/?template=demo://notes/%7Bname%7D")
    ada.page.locator("[data-argument] textarea").fill("welcome")
    expect(ada.page.locator("[data-expanded]")).to_have_text("demo://notes/welcome")
    end_sign_in(stack, ada)
    ada.page.get_by_role("button", name="Read now").click()
    sign_in_beside(ada)
    expect(ada.page.locator("#resource-content .call-slot, #resource-content .card").first).to_be_visible()
    expect(ada.page.locator("[data-call-refused]")).to_be_hidden()


@ENDS_THE_SIGN_IN
def test_what_one_user_typed_is_not_sent_as_another(stack: Stack, ada: Walk, forms: str) -> None:
    stack.shell(
        "from django.contrib.auth import get_user_model as m; "
        f"m().objects.create_superuser('another', password='{ADMIN[1]}')"
    )
    words, run = new_words(), new_words()
    ada.complaints.allow("403")
    ada.complaints.allow("401")  # the first tab may ask for a ticket before the second has signed in again
    ada.open_tool(forms, "shout")
    ada.fill_argument("text", run)
    ada.run_tool()
    expect(ada.result()).to_contain_text(run.upper())
    ada.fill_argument("text", words)
    tab = ada.page.context.new_page()
    tab.goto("/")
    tab.get_by_role("button", name="Account menu").click()
    tab.get_by_role("button", name="Sign out").click()
    tab.wait_for_url("**/accounts/login/")
    tab.locator("input[name=login]").fill("another")
    tab.locator("input[name=password]").fill(ADMIN[1])
    tab.locator("input[name=password]").press("Enter")
    expect(tab.get_by_role("heading", name="Overview")).to_be_visible()
    expect(pill(ada)).to_have_attribute("data-state", "signed-out")
    ada.run_tool()
    expect(ada.page.locator("[data-call-refused]")).to_contain_text("signed in as another user")
    assert calls_with(stack, words) == 0
    told = ada.page.locator("[data-toasts] .toast").filter(has_text="signed in as another user")
    for presses in (1, 2):  # the first one asks who is signed in
        ada.result().get_by_role("button", name="Run again").click()
        expect(told).to_have_count(presses)
    assert calls_with(stack, run) == 1


# --- a missing connection ----------------------------------------------------------------------------------------------
def block(page: Page, address: str) -> Callable[[], None]:
    """Block requests to `address` until the returned function is called."""
    held: list[Route] = []
    page.route(address, lambda route: held.append(route))

    def release() -> None:
        for route in held:
            route.continue_()
        page.unroute(address)

    return release


def test_a_run_before_the_connection_is_live_is_queued_and_sent_once(stack: Stack, ada: Walk, forms: str) -> None:
    words = new_words()
    release = block(ada.page, TICKETS)
    ada.open(f"/servers/{forms}/tools/?tool=shout")
    ada.fill_argument("text", words)
    ada.run_tool()
    expect(ada.page.locator("[data-run-state]")).to_have_text("Connecting…")
    assert calls_with(stack, words) == 0
    release()
    expect(ada.result()).to_contain_text(words.upper())
    assert ada.page.url.endswith("/tools/?tool=shout")
    assert calls_with(stack, words) == 1


@pytest.mark.long
def test_a_run_that_waits_for_the_connection_can_be_cancelled(stack: Stack, ada: Walk, forms: str) -> None:
    words = new_words()
    release = block(ada.page, TICKETS)
    ada.open(f"/servers/{forms}/tools/?tool=shout")
    ada.fill_argument("text", words)
    ada.run_tool()
    ada.page.locator(".runbar").get_by_role("button", name="Cancel").click()
    expect(ada.page.locator("[data-call-refused]")).to_contain_text("Cancelled. Nothing was sent.")
    release()
    expect(pill(ada)).to_have_attribute("data-state", "live")
    expect(ada.page.locator("[name='arg:/text']")).to_have_value(words)
    assert calls_with(stack, words) == 0


@pytest.mark.long
def test_a_connection_that_does_not_come_ends_the_wait_with_its_reason(stack: Stack, ada: Walk, forms: str) -> None:
    words = new_words()
    ada.complaints.allow("ERR_FAILED")
    ada.page.clock.install()
    ada.page.route(TICKETS, lambda route: route.abort())
    ada.open(f"/servers/{forms}/tools/?tool=shout")
    ada.fill_argument("text", words)
    ada.run_tool()
    expect(ada.page.locator("[data-run-state]")).to_have_text("Connecting…")
    ada.page.clock.run_for(21_000)
    expect(ada.page.locator("[data-call-refused]")).to_contain_text("Nothing was sent")
    expect(ada.page.locator("[name='arg:/text']")).to_have_value(words)
    expect(ada.page.get_by_role("button", name="Run tool")).to_be_enabled()
    assert calls_with(stack, words) == 0


def test_a_run_without_a_connection_asks_for_one_once_and_then_keeps_to_the_pace_of_the_connection(
    stack: Stack, ada: Walk, forms: str
) -> None:
    ada.complaints.allow("503")
    tickets: list[Route] = []

    def refuse(route: Route) -> None:
        tickets.append(route)
        route.fulfill(status=503)

    ada.page.clock.install()
    ada.page.route(TICKETS, refuse)
    ada.open(f"/servers/{forms}/tools/?tool=shout")
    ada.fill_argument("text", new_words())
    expect(pill(ada)).to_have_attribute("data-state", "reconnecting")
    ada.page.clock.pause_at(datetime.now() + timedelta(hours=1))  # after one more attempt
    answer_earlier_requests(ada.page)
    before = len(tickets)
    assert before > 0
    ada.run_tool()
    expect(ada.page.locator("[data-run-state]")).to_have_text("Connecting…")
    answer_earlier_requests(ada.page)
    assert len(tickets) == before + 1


def answer_earlier_requests(page: Page) -> None:
    page.evaluate("(async () => { for (let i = 0; i < 20; i += 1) await fetch('/accounts/session/'); })()")


def test_a_run_before_the_scripts_have_loaded_waits_for_them(stack: Stack, ada: Walk, forms: str) -> None:
    words = new_words()
    release = block(ada.page, "**/js/tools*.js")
    ada.page.goto(f"/servers/{forms}/tools/?tool=shout", wait_until="commit")
    ada.page.locator("[name='arg:/text']").fill(words)
    ada.page.get_by_role("button", name="Run tool").click(no_wait_after=True)
    expect(ada.page.locator("[data-run-state]")).to_have_text("Connecting…")
    release()
    expect(ada.result()).to_contain_text(words.upper())
    assert ada.page.url.endswith("/tools/?tool=shout")
    assert calls_with(stack, words) == 1


def test_a_tab_beyond_the_limit_of_connections_says_so_and_its_calls_open_their_pages(
    make_stack: Callable[..., Stack], walker: Callable[..., Walk]
) -> None:
    product = make_stack("--port", "0", env={"MCPADMIN_SOCKETS_PER_USER": "1"}, administrator=True).start()
    command = (sys.executable, FORMS, "0", "1")
    product.manage("register_server", "--user", ADMIN[0], "--name", "Forms", "--", *command)
    ada, words = walker(product, signed_in=True), new_words()
    ada.open("/servers/forms/tools/")
    ada.wait_for_state("Ready")
    expect(pill(ada)).to_have_attribute("data-state", "live")
    page = ada.page.context.new_page()
    page.goto("/servers/forms/tools/?tool=shout")
    notice = page.locator("[data-offline] .notice")
    expect(notice).to_contain_text("No live updates in this tab")
    expect(notice).to_contain_text("MCPADMIN_SOCKETS_PER_USER")
    page.locator("[name='arg:/text']").fill(words)
    page.get_by_role("button", name="Run tool").click()
    page.wait_for_url("**/calls/*/")
    ada.until(lambda: (page.reload(), words.upper() in page.content())[1])
    assert calls_with(product, words) == 1
    for path, button in (("prompts/?prompt=prompt-000", "Get prompt"), ("resources/?uri=memo:000", "Read now")):
        page.goto(f"/servers/forms/{path}")
        page.get_by_role("button", name=button).click()
        page.wait_for_url("**/calls/*/")
    assert len(product.rows("SELECT 1 FROM mcp_sessions_call")) == 3


def test_a_call_that_is_too_large_keeps_the_connection_and_names_the_limit(stack: Stack, ada: Walk, forms: str) -> None:
    words = new_words()
    ada.open_tool(forms, "shout")
    ada.fill_argument("text", words + " " * 1_100_000)
    ada.run_tool()
    refused = ada.page.locator("[data-call-refused]")
    expect(refused).to_contain_text("This call is too large. Limit: ")
    expect(refused).to_contain_text("Nothing was sent and your input is kept.")
    expect(pill(ada)).to_have_attribute("data-state", "live")
    assert calls_with(stack, words) == 0


# --- drafts ------------------------------------------------------------------------------------------------------------
def restored(page: Page) -> Locator:
    return page.get_by_role("status").filter(has_text="Restored")


def test_what_is_typed_is_there_again_after_another_tool_another_tab_back_and_reload(ada: Walk, forms: str) -> None:
    page = ada.page
    ada.open_tool(forms, "order")
    ada.fill_argument("title", "three cakes")
    for tag, number in (("sweet", 0), ("round", 1)):
        page.get_by_role("button", name="Add item").click()
        page.locator(f"[name='arg:/tags/{number}']").fill(tag)
    page.get_by_role("button", name="Week").click()
    page.locator("[name$='/week']").fill("W 49")
    page.locator("[name='arg:/password']").fill("never kept")
    page.locator("[name='arg:/login/pin']").fill("0815")

    def expect_draft() -> None:
        expect(restored(page)).to_contain_text("Secrets are not saved")
        expect(page.locator("[name='arg:/title']")).to_have_value("three cakes")
        expect(page.locator("[name='arg:/tags/1']")).to_have_value("round")
        expect(page.locator("[name$='/week']")).to_have_value("W 49")
        for secret in ("[name='arg:/password']", "[name='arg:/login/pin']"):
            expect(page.locator(secret)).to_have_value("")

    page.locator("#tool-list").get_by_text("shout", exact=True).click()
    expect(page.locator("[data-tool=shout]")).to_be_visible()
    expect(restored(page)).to_have_count(0)
    page.go_back()
    expect_draft()
    page.reload()
    expect_draft()
    page.get_by_role("link", name="History").first.click()
    page.wait_for_url("**/history/")
    page.goto(f"/servers/{forms}/tools/?tool=order")
    expect_draft()
    kept = page.evaluate("JSON.stringify(sessionStorage)")
    assert "three cakes" in kept
    assert "never kept" not in kept
    assert "0815" not in kept

    page.get_by_role("button", name="Clear").click()
    expect(restored(page)).to_have_count(0)
    expect(page.locator("[name='arg:/title']")).to_have_value("")
    page.reload()
    expect(page.locator("[name='arg:/title']")).to_have_value("")
    expect(restored(page)).to_have_count(0)


@pytest.mark.long
def test_what_is_typed_into_an_optional_field_is_there_again_after_one_key(ada: Walk, forms: str) -> None:
    ada.open_tool(forms, "order")
    ada.fill_argument(NOTE, "7")
    ada.page.reload()
    expect(restored(ada.page)).to_be_visible()
    expect(ada.page.locator(f"[name='arg:/{NOTE}']")).to_have_value("7")


def test_what_is_typed_before_the_earlier_input_comes_wins_over_it(ada: Walk, forms: str) -> None:
    page = ada.page
    ada.open_tool(forms, "order")
    ada.fill_argument("title", "earlier")
    ada.fill_argument(NOTE, "7")
    release = block(page, EDITS)
    page.reload()
    expect(page.locator("#tool-form[aria-busy]")).to_be_attached()
    page.locator("[name='arg:/title']").press_sequentially("later")
    release()
    expect(restored(page)).to_be_visible()
    expect(page.locator("[name='arg:/title']")).to_have_value("later")
    expect(page.locator(f"[name='arg:/{NOTE}']")).to_have_value("7")
    page.reload()
    expect(restored(page)).to_be_visible()
    expect(page.locator("[name='arg:/title']")).to_have_value("later")


@pytest.mark.long
def test_a_form_that_was_sent_empty_has_no_earlier_input_to_restore(ada: Walk, forms: str) -> None:
    page = ada.page
    ada.open_tool(forms, "shout")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert").or_(page.locator(".err")).first).to_be_visible()
    page.reload()
    expect(page.locator("[data-run]")).to_be_visible()
    expect(page.locator("body[data-live-phase], [data-live-pill]").first).to_contain_text("Live")
    expect(restored(page)).to_have_count(0)


def test_the_text_of_arguments_that_may_hold_a_secret_is_not_kept(ada: Walk, forms: str) -> None:
    ada.open_tool(forms, "order")
    ada.page.get_by_role("button", name="JSON", exact=True).click()
    ada.page.locator("#tool-json").fill('{"password": "never kept either"}')
    ada.page.locator("#tool-json").blur()
    assert "never kept either" not in ada.page.evaluate("JSON.stringify(sessionStorage)")
    ada.open_tool(forms, "shout")
    ada.page.get_by_role("button", name="JSON", exact=True).click()
    ada.page.locator("#tool-json").fill('{"text": "kept"}')
    ada.page.reload()
    expect(ada.page.locator("#tool-json")).to_have_value('{"text": "kept"}')


@ENDS_THE_SIGN_IN
def test_drafts_leave_with_the_person_who_signs_out(ada: Walk, forms: str) -> None:
    ada.complaints.allow("401")  # the page may still ask for its live connection when the sign-in has ended
    ada.open_tool(forms, "shout")
    ada.fill_argument("text", "mine alone")
    ada.page.get_by_role("button", name="Account menu").click()
    ada.page.get_by_role("button", name="Sign out").click()
    ada.page.wait_for_url("**/accounts/login/")
    assert "mine alone" not in ada.page.evaluate("JSON.stringify(sessionStorage)")


# --- edits of a form ---------------------------------------------------------------------------------------------------
EDITS = "**/tools/form/**"


def field(page: Page, path: str) -> Locator:
    return page.locator(f"[name='arg:/{path}']")


def remove_button(page: Page, number: int) -> Locator:
    return page.locator(f"[name=_op][value='del:/parcels/{number}']")


@pytest.fixture
def parcels(ada: Walk, forms: str) -> tuple[str, str]:
    """The names of two items of a list, in the form; the first has all that the second leaves out."""
    page, names = ada.page, (new_words(), new_words())
    ada.open_tool(forms, "tool-00")
    for number, name in enumerate(names):
        page.get_by_role("button", name="Add item").click()
        field(page, f"parcels/{number}/name").fill(name)
    page.locator(".sf-more summary").first.click()
    field(page, "parcels/0/note").fill("handle with care")
    field(page, "parcels/0/fragile").check()
    field(page, "speed").select_option("slow")
    return names


def test_a_removed_item_leaves_nothing_of_it_in_the_next_one(stack: Stack, ada: Walk, parcels: tuple[str, str]) -> None:
    page, (first, second) = ada.page, parcels
    remove_button(page, 0).click()
    expect(remove_button(page, 1)).to_have_count(0)
    expect(field(page, "parcels/0/name")).to_have_value(second)
    expect(field(page, "speed")).to_have_value("0")
    ada.run_tool()
    ada.until(lambda: calls_with(stack, second) == 1)
    assert calls_with(stack, f'{{"parcels": [{{"name": "{second}"}}], "speed": "slow"}}') == 1
    assert calls_with(stack, first) == 0


def test_what_is_typed_while_an_edit_of_the_form_is_on_its_way_is_kept_and_sent(
    stack: Stack, ada: Walk, parcels: tuple[str, str]
) -> None:
    page, (first, second), third = ada.page, parcels, new_words()
    release = block(page, EDITS)
    remove_button(page, 0).click()
    field(page, "parcels/1/name").fill(third)
    remove_button(page, 1).click()  # it may be of another item by then: not done
    ada.run_tool()
    release()
    expect(field(page, "parcels/0/name")).to_have_value(third)
    ada.until(lambda: calls_with(stack, third) == 1)
    assert (calls_with(stack, first), calls_with(stack, second)) == (0, 0)


def test_nothing_typed_is_lost_between_the_form_and_json(ada: Walk, forms: str) -> None:
    page = ada.page
    ada.open_tool(forms, "order")
    ada.fill_argument(NOTE, "12a")
    page.get_by_role("button", name="JSON", exact=True).click()
    expect(page.get_by_text("Correct these values before you switch to JSON")).to_be_visible()
    expect(page.locator("[data-sf-errors]")).to_be_focused()
    expect(field(page, NOTE)).to_have_value("12a")
    field(page, NOTE).fill("12")
    page.get_by_role("button", name="JSON", exact=True).click()
    expect(page.locator("#tool-json")).to_have_value(re.compile(f'"{NOTE}": 12'))
    page.locator("#tool-json").fill('{"title": "x", ')
    page.get_by_role("button", name="Form", exact=True).click()
    expect(page.get_by_text("Invalid JSON: correct it here or switch back.")).to_be_visible()
    page.get_by_role("button", name="JSON", exact=True).click()
    expect(page.locator("#tool-json")).to_have_value('{"title": "x", ')


def test_a_tool_that_changed_meanwhile_is_not_run_with_options_of_the_old_one(
    stack: Stack, ada: Walk, parcels: tuple[str, str]
) -> None:
    notice = ada.page.locator("[data-tool-changed]")
    for before, after in (('"slow","fast"', '"fast","slow"'), ('"fast","slow"', '"slow","fast"')):
        stack.write("UPDATE servers_definition SET body = replace(body, ?, ?) WHERE key = 'tool-00'", before, after)
        ada.run_tool()
        expect(notice).to_be_focused()
        expect(notice).to_have_text("The tool changed while you filled in the form. Check the fields.")
    assert calls_with(stack, parcels[0]) == 0
    ada.run_tool()
    ada.until(lambda: calls_with(stack, parcels[0]) == 1)


# --- keys and lists ----------------------------------------------------------------------------------------------------
@pytest.mark.long
def test_control_enter_presses_the_button_that_saves(stack: Stack, ada: Walk, forms: str) -> None:
    words = new_words()
    ada.open(f"/servers/{forms}/settings/")
    ada.page.get_by_label("Notes").fill(words)
    ada.page.get_by_label("Notes").press("Control+Enter")
    expect(ada.page.get_by_text("Saved.", exact=True)).to_be_visible()
    name = f"Added {uuid4().hex[:6]}"
    ada.fill_stdio(name, sys.executable, [FORMS])
    ada.page.get_by_label("Command", exact=True).press("Control+Enter")
    expect(ada.page.get_by_role("heading", name=name)).to_be_visible()


@pytest.mark.long
def test_a_deep_link_shows_its_tool_in_the_list_and_enter_in_the_search_opens_the_first_hit(
    ada: Walk, forms: str
) -> None:
    page = ada.page
    ada.open_tool(forms, "tool-55")
    expect(page.locator("#tool-list a[aria-current]")).to_be_in_viewport()
    assert page.evaluate("scrollY") == 0
    search = page.get_by_role("searchbox", name="Search tools").first
    search.fill("tool-4")
    search.press("Enter")
    expect(page).to_have_url(re.compile(r"\?tool=tool-40$"))
    expect(page.locator("[data-tool='tool-40']")).to_be_visible()
