"""A refusal names the request that it answers: an agent waits for a response with its id, on a resumed stream too."""

from typing import Any

import pytest
from django.utils import timezone

from servers.models import AgentPolicy
from sessions.agents.policy import policy_check
from sessions.enums import CallState
from sessions.models import Call
from tests.sessions.agents.door import LEGACY, Door, make_listed, token_of

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = {"name": "echo", "arguments": {}}
LIST = {"jsonrpc": "2.0", "id": "seven", "method": "tools/list"}


def fails(call: Any) -> None:
    """As a worker writes that the server answered with an error."""
    fields = {"error_code": -32050, "error_message": "No room.", "finished_at": timezone.now()}
    Call.objects.filter(uid=call).update(state=CallState.RPC_ERROR, **fields)


async def test_an_error_of_the_server_is_the_response_on_a_resumed_stream(ada: Any, door: Door) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    key = await door.session(token, "files")
    asked = door.legacy(token, "files", key, "tools/call", ECHO, id="seven")
    call = await door.viewed()
    asked.leaves()
    await asked.ends()
    await door.thread(fails, call)
    found = await door.get(token, "files", key, last_event_id=f"{call}:0").response()
    assert (found["id"], found["error"]["code"]) == ("seven", -32050)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"mcp_session_id": "unknown"}, 404),
        ({"mcp_protocol_version": "2024-01-01"}, 400),
        ({}, 429),
    ],
)
async def test_what_is_refused_before_its_method_is_looked_at_is_named_too(
    ada: Any, door: Door, headers: dict[str, str], status: int
) -> None:
    session = await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    key = await door.session(token, "files")
    if status == 429:
        await door.thread(AgentPolicy.objects.create, server=session.server, calls_in_flight=0)
        policy_check.memory.forget()
    given = {"mcp_session_id": key, "mcp_protocol_version": LEGACY} | headers
    asked = door.post(token, "files", LIST, **given)
    assert ((await asked.response())["id"], asked.status) == ("seven", status)


async def test_an_endpoint_that_does_not_exist_is_named_to_the_request(ada: Any, door: Door) -> None:
    token = await door.thread(token_of, ada)
    asked = door.modern(token, "absent", "tools/list", id=7)
    assert ((await asked.response())["id"], asked.status) == (7, 404)
