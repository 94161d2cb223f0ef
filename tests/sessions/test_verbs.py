"""Session verbs by the button, while somebody else holds the database."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from servers.audit import writer as writing
from sessions.enums import Desired
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


@pytest.mark.parametrize("verb", ["connect", "reconnect", "refresh"])
def test_a_verb_that_cannot_be_recorded_is_refused_in_words(verb: str, visitor: Client, locked: None) -> None:
    answer: Any = visitor.post(f"/servers/orders/{verb}/", follow=True)
    assert answer.status_code == 200
    assert SAID in answer.content.decode()
    assert McpSession.objects.get().desired == Desired.CLOSED


def test_the_live_page_is_told_by_status_503(visitor: Client, locked: None) -> None:
    answer = visitor.post("/servers/orders/connect/", headers={"HX-Request": "true"})
    assert (answer.status_code, SAID in answer.content.decode()) == (503, True)
