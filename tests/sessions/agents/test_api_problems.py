"""The HTTP API while the database is away, or where it is asked for what it does not take: answers in its own shape."""

import asyncio
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.test import AsyncClient

from servers.audit.writer import AuditUnavailable, WriterBusy
from servers.crypto import SealError
from sessions.agents import asgi
from tests.sessions.agents.door import Door, token_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def token(ada: Any) -> str:
    return token_of(ada)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (OperationalError("the database system is shutting down"), "The database is not responding."),
        (InterfaceError("connection already closed"), "The database is not responding."),
        (SealError("The key ring lacks k1."), "The key ring lacks k1."),
        (WriterBusy("This process is stopping."), "This process is stopping."),
    ],
)
async def test_a_request_that_cannot_be_answered_now_is_told_to_come_back(
    door: Door, token: str, problem: Exception, words: str
) -> None:
    asgi._applications[asyncio.get_running_loop()] = door.application
    door.database.problem = problem
    answer = await AsyncClient().get("/api/v1/servers", headers={"Authorization": f"Bearer {token}"})
    assert (answer.status_code, answer["Content-Type"], answer["Retry-After"]) == (503, "application/problem+json", "2")
    found = answer.json()
    assert (found["type"], found["detail"].startswith(words)) == ("urn:mcpadmin:problem:unavailable", True)


async def test_what_may_have_been_done_is_not_said_to_be_undone(door: Door, token: str) -> None:
    words = "The audit log could not be written in time. Check whether the change was made before trying again."
    asgi._applications[asyncio.get_running_loop()] = door.application
    door.database.problem = AuditUnavailable(words)
    answer = await AsyncClient().get("/api/v1/servers", headers={"Authorization": f"Bearer {token}"})
    assert (answer.status_code, answer.json()["detail"]) == (503, words)


async def test_a_method_that_an_address_does_not_take_is_a_problem_too() -> None:
    answer = await AsyncClient().delete("/api/v1/servers")
    assert (answer.status_code, answer["Content-Type"], answer["Allow"]) == (405, "application/problem+json", "GET")
    assert answer.json()["type"] == "urn:mcpadmin:problem:invalid"
