"""The *Tasks* tab with real servers of both kinds of tasks: live status, the result, cancellation, a worker that is killed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.walk import Walk
from tests.peers.peers import start_peer
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.deadline(300)]


#: the SDK's tasks of 2025-11-25 belong to the session that began them
ONLY_MODERN = pytest.mark.parametrize("peer", ["sdk2-tasks"], ids=["2026-07-28"], indirect=True)
ONLY_LEGACY = pytest.mark.parametrize("peer", ["sdk1-tasks"], ids=["2025-11-25"], indirect=True)


@pytest.fixture(
    scope="module",
    params=[pytest.param("sdk1-tasks", marks=pytest.mark.long), "sdk2-tasks"],
    ids=["2025-11-25", "2026-07-28"],
)
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """(its URL, the folder with its log and its release)"""
    folder = tmp_path_factory.mktemp(request.param)
    started = start_peer(request.param, env={"TASK_LOG": str(folder / "log"), "TASK_RELEASE": str(folder / "release")})
    yield started.url, folder
    started.stop()


@pytest.fixture(scope="module")
def tasked(own_stack: Stack, peer: tuple[str, Path]) -> tuple[Stack, str, Path]:
    """A product with this server, and nothing released yet."""
    return own_stack, peer[0], peer[1]


def begun(ada: Walk, url: str, folder: Path) -> Locator:
    """Register the server where it is new, start its tool, open the Tasks tab: the newest row."""
    (folder / "release").unlink(missing_ok=True)
    name = f"Tasks {url.rpartition(':')[2].partition('/')[0]}"
    slug = name.lower().replace(" ", "-")
    ada.open("/servers/")
    if not ada.page.get_by_role("link", name=name).count():
        ada.register_http(name, url)
    ada.open(f"/servers/{slug}/tools/")
    ada.wait_for_state("Ready")
    before = len((folder / "log").read_text().splitlines()) if (folder / "log").exists() else 0
    ada.open_tool(slug, "slow")
    if ada.page.locator("[name=_confirm]").count():
        ada.page.locator("[name=_confirm]").fill("slow")
    ada.run_tool()
    expect(ada.result()).to_contain_text("Running")
    ada.until(lambda: (folder / "log").exists() and len((folder / "log").read_text().splitlines()) == before + 1)
    ada.page.locator("nav.tabs").get_by_role("link", name="Tasks").click()
    row = ada.page.locator("[data-task]").first
    expect(row).to_contain_text("Working")
    expect(row).to_contain_text("waiting for the release", timeout=15_000)
    return row


def test_a_task_is_shown_live_until_its_result_is_there(
    tasked: tuple[Stack, str, Path], walker: Callable[..., Walk]
) -> None:
    stack, url, folder = tasked
    ada = walker(stack, signed_in=True)
    row = begun(ada, url, folder)
    (folder / "release").touch()
    expect(row).to_contain_text("Completed", timeout=20_000)
    row.get_by_role("link", name="result").click()
    expect(ada.page.locator("main")).to_contain_text("released at last")


def test_a_task_is_cancelled_from_its_row(tasked: tuple[Stack, str, Path], walker: Callable[..., Walk]) -> None:
    stack, url, folder = tasked
    ada = walker(stack, signed_in=True)
    row = begun(ada, url, folder)
    row.get_by_role("button", name="Cancel").click()
    expect(row.get_by_role("button", name="Cancel")).to_have_count(0, timeout=20_000)
    expect(row).to_contain_text("Cancelled", timeout=20_000)


@ONLY_MODERN
def test_a_task_outlives_its_worker_and_its_result_is_kept(
    tasked: tuple[Stack, str, Path], walker: Callable[..., Walk]
) -> None:
    stack, url, folder = tasked
    ada = walker(stack, signed_in=True)
    row = begun(ada, url, folder)
    ran = len((folder / "log").read_text().splitlines())
    stack.kill_worker()
    expect(row).to_contain_text("Tracked after the worker was lost", timeout=90_000)
    expect(row).to_contain_text("Working")
    (folder / "release").touch()
    expect(row).to_contain_text("Completed", timeout=30_000)
    row.get_by_role("link", name="result").click(timeout=30_000)
    expect(ada.page.locator("main")).to_contain_text("released at last")
    assert len((folder / "log").read_text().splitlines()) == ran, "the tool ran once"


@pytest.mark.long
@ONLY_MODERN
def test_a_task_that_is_followed_after_its_worker_was_lost_is_cancelled(
    tasked: tuple[Stack, str, Path], walker: Callable[..., Walk]
) -> None:
    stack, url, folder = tasked
    ada = walker(stack, signed_in=True)
    row = begun(ada, url, folder)
    stack.kill_worker()
    expect(row).to_contain_text("Tracked after the worker was lost", timeout=90_000)
    row.get_by_role("button", name="Cancel").click()
    expect(row).to_contain_text("Cancelled", timeout=30_000)


@pytest.mark.long
@ONLY_LEGACY
def test_a_task_that_the_server_forgets_with_its_session_ends_as_lost(
    tasked: tuple[Stack, str, Path], walker: Callable[..., Walk]
) -> None:
    stack, url, folder = tasked
    ada = walker(stack, signed_in=True)
    row = begun(ada, url, folder)
    stack.kill_worker()
    expect(row).to_contain_text("Lost", timeout=90_000)
    expect(row).to_contain_text("The server no longer knows the task")
    expect(row.get_by_role("button", name="Cancel")).to_have_count(0)
