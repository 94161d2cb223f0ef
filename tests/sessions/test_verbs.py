"""Session verbs by button: they are refused with a message while the database is locked, and otherwise recorded."""

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from servers.audit import writer as writing
from sessions.enums import Desired, SessionCondition
from sessions.models import McpSession
from tests.servers.conftest import person
from tests.sessions.host.make import make_session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.integration]
SAID = "could not be written in time"


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def visitor() -> Client:
    make_session("orders", desired=Desired.CLOSED)
    client = Client()
    client.force_login(person("carl", "view_server", "call_tool"))
    return client


@pytest.fixture
def locked(visitor: Client) -> Iterator[None]:
    holder = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    yield
    holder.close()


@pytest.mark.parametrize("verb", ["connect", "reconnect", "refresh", "pause"])
def test_a_verb_that_cannot_be_recorded_is_refused_in_words(verb: str, visitor: Client, locked: None) -> None:
    answer: Any = visitor.post(f"/servers/orders/{verb}/", follow=True)
    assert answer.status_code == 200
    assert SAID in answer.content.decode()
    assert McpSession.objects.get().desired == Desired.CLOSED


def test_the_live_page_is_told_by_status_503(visitor: Client, locked: None) -> None:
    answer = visitor.post("/servers/orders/connect/", headers={"HX-Request": "true"})
    assert (answer.status_code, SAID in answer.content.decode()) == (503, True)


# --- pause, resume, retry --------------------------------------------------------------------------------------------
def said(answer: Any) -> str:
    return " ".join(str(message) for message in answer.context["messages"])


def test_a_session_is_paused_and_resumed_by_the_button_and_says_who_did_it(visitor: Client) -> None:
    assert "Orders is paused" in said(visitor.post("/servers/orders/pause/", follow=True))
    page = visitor.get("/servers/orders/tools/").content.decode()
    assert 'data-phase="paused"' in page
    assert "Paused by carl" in page
    assert "is already paused" in said(visitor.post("/servers/orders/pause/", follow=True))
    assert "Orders is resumed" in said(visitor.post("/servers/orders/resume/", follow=True))
    assert "is not paused" in said(visitor.post("/servers/orders/resume/", follow=True))
    assert not McpSession.objects.get().paused


def test_a_try_is_asked_for_only_where_one_is_waited_for(visitor: Client) -> None:
    assert "is not waiting for a retry" in said(visitor.post("/servers/orders/retry/", follow=True))
    retry_at = timezone.now() + timedelta(seconds=50)
    waiting = {"desired": Desired.OPEN, "condition": SessionCondition.BACKING_OFF, "next_retry_at": retry_at}
    McpSession.objects.update(**waiting, attempts=3, fault="timeout", fault_detail="No answer.")
    page = visitor.get("/servers/orders/tools/").content.decode()
    assert 'data-phase="waiting"' in page
    assert "Attempt 4 in" in page
    assert "Retrying Orders" in said(visitor.post("/servers/orders/retry/", follow=True))
    assert McpSession.objects.get().restart_requested == 1


@pytest.mark.parametrize("verb", ["pause", "resume", "retry"])
def test_without_the_right_to_call_nobody_pauses_or_retries(verb: str, visitor: Client) -> None:
    guest = Client()
    guest.force_login(person("guest", "view_server"))
    assert guest.post(f"/servers/orders/{verb}/").status_code == 403


def test_the_connection_timeline_stands_on_connection_info(visitor: Client) -> None:
    visitor.post("/servers/orders/connect/")
    visitor.post("/servers/orders/pause/")
    page = visitor.get("/servers/orders/info/").content.decode()
    assert page.index("Requested by carl.") < page.rindex("Requested by carl.")
    assert page.index(">Pause<") < page.index("Connect</span>")
