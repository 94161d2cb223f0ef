"""The HTTP API while the database is away, or where it is asked for what it does not take: answers in its own shape."""

import asyncio
import json
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.test import AsyncClient, RequestFactory

from servers import limits
from servers.agents.tokens import principal_of
from servers.audit.writer import AuditUnavailable, WriterBusy
from servers.crypto import SealError
from sessions.agents import asgi, requests
from sessions.api import calls, problems
from sessions.api.asking import Caller
from sessions.mcp.server.refusals import Refusal
from sessions.models import Call
from tests.sessions.agents.door import Door, make_listed, token_of
from tests.sessions.host.make import make_session

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


def refused(refusal: Refusal) -> tuple[int, str]:
    answer = problems._refused(RequestFactory().get("/api/v1/servers"), refusal)
    return answer.status_code, json.loads(answer.content)["type"].removeprefix("urn:mcpadmin:problem:")


@pytest.mark.parametrize(
    ("refusal", "status", "kind"),
    [
        (Refusal(503, -32603, "Files is not connected yet.", {"retryAfterMs": 5_000}), 503, "unavailable"),
        (Refusal(200, -32603, "Files did not send this list: timeout."), 503, "unavailable"),
        (Refusal(404, -32600, "This endpoint does not exist."), 404, "not-found"),
        (Refusal(403, 4030, "You don't have permission to call tools."), 403, "forbidden"),
        (Refusal(403, 4030, "Rule “Deny *”.", {"reason": "policy"}), 403, "insufficient-scope"),
        (Refusal(200, -32602, "Unknown tool: absent"), 422, "invalid"),
    ],
)
def test_a_refusal_of_the_endpoint_for_agents_is_of_the_kind_that_the_documentation_lists(
    refusal: Refusal, status: int, kind: str
) -> None:
    assert refused(refusal) == (status, kind)


async def test_a_server_that_is_not_connected_is_unavailable_and_no_invalid_request(
    door: Door, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asgi._applications[asyncio.get_running_loop()] = door.application
    monkeypatch.setattr(requests, "CONNECT_SECONDS", 0.1)
    await door.thread(make_session, "files")
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
    answer = await AsyncClient().post(
        "/api/v1/servers/files/calls", {"tool": "echo"}, "application/json", headers=headers
    )
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:mcpadmin:problem:unavailable")


async def test_half_of_a_surrogate_pair_is_refused_instead_of_sent_as_another_character(door: Door, token: str) -> None:
    asgi._applications[asyncio.get_running_loop()] = door.application
    await door.thread(make_listed, "files")
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
    body = '{"tool": "echo", "arguments": {"text": "\\ud800"}}'
    answer = await AsyncClient().post("/api/v1/servers/files/calls", body, "application/json", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:mcpadmin:problem:invalid")
    assert not await door.thread(Call.objects.exists)


async def test_a_request_has_as_few_values_as_one_over_mcp(door: Door, token: str) -> None:
    asgi._applications[asyncio.get_running_loop()] = door.application
    await door.thread(make_listed, "files")
    values = [0] * limits.number("agent_body_values")
    answer = await AsyncClient().post(
        "/api/v1/servers/files/calls",
        json.dumps({"tool": "echo", "arguments": {"a": values}}),
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}", "Idempotency-Key": "k"},
    )
    assert answer.status_code == 400
    assert not await door.thread(Call.objects.exists)


@pytest.mark.parametrize("cursor", ["nonsense", "o", "o.events-7"])
def test_a_cursor_that_is_none_of_the_list_of_calls_does_not_begin_it_again(ada: Any, cursor: str) -> None:
    caller = Caller(principal_of(token_of(ada, "history"), ""), "192.0.2.7", "request-0001")
    with pytest.raises(problems.Problem) as raised:
        calls._page(caller, "", cursor, 50)
    assert (raised.value.status, raised.value.kind) == (422, "invalid-cursor")


async def test_a_method_that_an_address_does_not_take_is_a_problem_too() -> None:
    answer = await AsyncClient().delete("/api/v1/servers")
    assert (answer.status_code, answer["Content-Type"], answer["Allow"]) == (405, "application/problem+json", "GET")
    assert answer.json()["type"] == "urn:mcpadmin:problem:invalid"
