"""Who called what on which server yesterday between 3 and 4, that failed, slower than 2 s, containing "acme"? One line finds
it; what follows in one walk: sharing, erasing, exporting, verifying without the product."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Download, expect

from servers.audit.proof import verify_export
from tests.e2e.explorer_rows import SEED
from tests.e2e.walk import SECONDS, Walk
from tests.tools.browser import sign_in, watched_context
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]
AUDITOR = f"""
from django.contrib.auth.models import Permission, User
user = User.objects.create_user("rhea", password={ADMIN[1]!r})
user.user_permissions.set(Permission.objects.filter(codename__in=["view_server", "view_auditevent"]))
"""
METADATA = ("create_issue", "Github API", "ann", "4.21 s")
REASON = "Request 17 of a customer"


def conditions() -> str:
    day = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    return f'since:{day}T15:00 until:{day}T16:00 user:ann server:"Github API" outcome:error duration:>2s'


def ask(ada: Walk, question: str) -> None:
    ada.open("/explorer/")
    ada.page.keyboard.press("/")
    ada.page.locator("#query").fill(question)
    ada.page.locator("#query").press("Enter")


def find_and_copy_link(ada: Walk) -> str:
    ask(ada, f'{conditions()} "acme"')
    rows = ada.page.locator("tr[data-sel]")
    expect(rows).to_have_count(1)
    for words in METADATA:
        expect(rows).to_contain_text(words)
    rows.get_by_role("link").click()
    detail = ada.page.locator("#detail")
    for words in ("Acme invoice", "rate limit of acme reached", "Valid in the audit chain"):
        expect(detail).to_contain_text(words)
    detail.get_by_role("tab", name="Timeline").click()
    expect(detail.get_by_role("tabpanel", name="Timeline")).to_contain_text("Call requested")
    return str(detail.locator("[data-copy^=http]").get_attribute("data-copy"))


def opens_metadata_only(stack: Stack, browser: Browser, link: str, uid: str) -> None:
    stack.shell(AUDITOR)
    with watched_context(browser, stack.base_url) as (context, complaints):
        rhea = context.new_page()
        sign_in(rhea, "rhea", ADMIN[1])
        rhea.goto(link)
        opened = rhea.locator("#detail")
        for words in METADATA:
            expect(opened).to_contain_text(words)
        expect(opened).to_contain_text("You don't have permission to read the arguments")
        opened.get_by_role("tab", name="Timeline").click()
        expect(opened.get_by_role("tabpanel", name="Timeline")).to_contain_text("Call requested")
        assert "acme" not in rhea.content().lower()
        rhea.goto(f"{stack.base_url}/calls/{uid}/")
        expect(rhea.get_by_role("heading", name="create_issue")).to_be_visible()
        assert "acme" not in rhea.content().lower()
        assert complaints.unexpected() == []


def erase_arguments(ada: Walk, uid: str) -> None:
    ada.open(f"/calls/{uid}/")
    expect(ada.page.locator("main")).to_contain_text("acme refused")
    ada.page.get_by_role("link", name="Erase arguments").click()
    expect(ada.page.locator("main")).to_contain_text("recorded protocol messages of this call")
    ada.page.get_by_label("Reason").fill(REASON)
    ada.page.get_by_role("button", name="Erase").click()
    expect(ada.page.get_by_text("Arguments erased")).to_be_visible()
    assert "acme" not in ada.page.content().lower()
    ask(ada, f'{conditions()} "acme"')
    expect(ada.page.locator("[data-results]")).to_contain_text("No ")
    expect(ada.page.locator("tr[data-sel]")).to_have_count(0)


def export_and_download(ada: Walk, query: str) -> Download:
    """With arguments and results."""
    ask(ada, query)
    expect(ada.page.locator("tr[data-sel]").first).to_be_visible()
    ada.page.get_by_role("link", name="Export", exact=True).click()
    with_zone = query.replace(":00 ", ":00:00Z ")
    expect(ada.page.get_by_role("textbox", name="Query")).to_have_value(with_zone)
    ada.page.get_by_label("Include arguments and results").check()
    ada.page.get_by_role("button", name="Export").click()
    row = ada.page.locator("#exports-list tbody tr").first
    with ada.page.expect_download(timeout=60 * SECONDS) as downloading:
        row.get_by_role("link", name="Download").click(timeout=60 * SECONDS)
    return downloading.value


def verify_offline(stack: Stack, path: Path) -> str:
    """In a separate process that cannot import the product."""
    key = stack.manage("checkpoint_key").strip().splitlines()[-1]
    command = [sys.executable, "-I", verify_export.__file__, str(path), "--key", key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def investigate(stack: Stack, walker, browser: Browser, folder: Path, calls: int) -> None:
    uid = stack.shell(SEED.format(calls=calls)).strip().splitlines()[-1]
    ada = walker(stack, signed_in=True, timezone_id="UTC")
    opens_metadata_only(stack, browser, find_and_copy_link(ada), uid)
    erase_arguments(ada, uid)

    found = export_and_download(ada, conditions())
    found.save_as(export := folder / "found.jsonl")
    text = export.read_text()
    assert uid in text
    assert "acme" not in text.lower()
    report = verify_offline(stack, export)
    # request, send and finish, and what was done with its arguments since: read, and erased
    assert report.startswith("No tampering found: 5 events verified, 0 payloads, 1 erased.")

    erasure = export_and_download(ada, 'last:1h kind:"instance:payload:erase"')
    erasure.save_as(export := folder / "erasure.jsonl")
    assert "instance:payload:erase" in export.read_text()
    verify_offline(stack, export)
    assert "No tampering found" in stack.manage("verify_audit")


def test_the_one_call_among_thousands_is_found_shared_erased_exported_and_proved(
    own_stack: Stack, walker, browser: Browser, tmp_path: Path
) -> None:
    investigate(own_stack, walker, browser, tmp_path, 3_000)


@pytest.mark.deadline(2400)
def test_the_one_call_among_a_hundred_thousand_is_found_shared_erased_exported_and_proved(
    make_stack: Callable[..., Stack], walker, browser: Browser, tmp_path: Path
) -> None:
    investigate(make_stack(administrator=True).start(), walker, browser, tmp_path, 100_000)
