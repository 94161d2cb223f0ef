"""A list that a real worker refuses: its tab says at once what was refused, by which limit, and who may change it."""

import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from sessions.models import McpSession
from tests.sessions.host.harness import WorkerProcess, await_ready, eventually
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[3]
#: scenario of tests/peers/hostile/lists.py: what its tab says
SAID = {
    "giant-list": "Limit: 12 MiB per message. Change it for this server under Settings, Limits",
    "list-of-values": "500,000 values per message",
    "deep-list": "Limit: 64 levels of nested arrays and objects. Change it for this server under Settings, Limits",
    "broken-list": "The server sent an invalid message",
    "list-of-another-type": "has no list",
    "entries-of-other-types": "An entry without name was left out.",
    "duplicate-names": "is listed twice; the first was kept.",
    "many-tools": "10,000 entries per list",
    "endless-pages": "500 pages per list",
    "circling-cursor": "The server repeats a cursor.",
}


def hostile(scenario: str) -> McpSession:
    command = ["-c", "from tests.peers.hostile.hostile_stdio import main; import sys; main(sys.argv[1])", scenario]
    given = {"PYTHONPATH": str(ROOT)}
    files = [str(ROOT / "tests")]
    return make_session(scenario, command=sys.executable, arguments=command, environment=given, readable_paths=files)


@pytest.fixture
def admin(transactional_db: None) -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada", password="correct horse battery"))
    return client


def tab(admin: Client, scenario: str) -> str:
    return admin.get(f"/servers/{scenario}/tools/").content.decode()


@pytest.mark.parametrize("scenario", SAID)
def test_the_tab_of_a_refused_list_says_what_was_refused_and_why(
    shared_worker: WorkerProcess, admin: Client, scenario: str
) -> None:
    session = hostile(scenario)
    await_ready(session)
    told = eventually(lambda: said_of(session), 60, "nothing was said")
    page = tab(admin, scenario)
    assert SAID[scenario] in page, told
    if told["problem"]:
        assert "The tools could not be loaded" in page
        assert "offers no tools" not in page, "a refused list is not an empty one"


def test_a_refused_list_is_reported_while_another_list_of_the_server_is_still_awaited(
    shared_worker: WorkerProcess, admin: Client
) -> None:
    session = hostile("broken-list-beside-silence")
    await_ready(session)
    told = eventually(lambda: said_of(session), 60, "it waited for the prompts")
    assert told["problem"]
    row = McpSession.objects.get(pk=session.pk)
    assert "prompt" not in row.catalog_counts
    assert "The server sent an invalid message" in tab(admin, session.server.slug)


def said_of(session: McpSession) -> dict[str, Any] | None:
    counts = McpSession.objects.values_list("catalog_counts", flat=True).get(pk=session.pk)
    told = counts.get("tool") or {}
    return {"problem": told.get("problem"), "warnings": told.get("warnings")} if told else None
