"""A client that lost a stream comes back with the id of its last event, and stops where nothing follows. SDKs come back
after an error too, and each second after an empty stream."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from sessions.enums import CallState
from sessions.models import Call
from tests.sessions.agents.door import LEGACY, Asked, Door, make_listed, token_of

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = {"name": "echo", "arguments": {}, "_meta": {"progressToken": "p"}}  # its stream opens at once


async def asked(door: Door, user: Any) -> tuple[str, str, Asked, UUID]:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, user)
    key = await door.session(token, "files")
    asked = door.legacy(token, "files", key, "tools/call", ECHO)
    return token, key, asked, await door.viewed()


def fails(call: UUID) -> None:
    fields = {"error_code": -32050, "error_message": "No room.", "finished_at": timezone.now()}
    Call.objects.filter(uid=call).update(state=CallState.RPC_ERROR, **fields)


async def test_an_error_ends_a_stream_as_a_result_does(ada: Any, door: Door) -> None:
    token, key, first, call = await asked(door, ada)
    await door.thread(fails, call)
    door.hint(f"call.{call}")
    assert (await first.response())["error"]["code"] == -32050
    assert f"id: {call}:1\n" in first.sent.decode()
    again = door.get(token, "files", key, last_event_id=f"{call}:1")
    await again.ends()
    assert (again.status, again.sent) == (204, b"")


async def test_a_call_that_the_agent_cancelled_leaves_nothing_to_resume(ada: Any, door: Door) -> None:
    token, key, first, call = await asked(door, ada)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    await door.post(token, "files", cancelled, mcp_session_id=key, mcp_protocol_version=LEGACY).ends()
    door.hint(f"call.{call}")
    await first.ends()
    again = door.get(token, "files", key, last_event_id=f"{call}:0")
    await again.ends()
    assert (again.status, again.sent) == (204, b"")


async def test_a_resumed_stream_can_be_resumed(ada: Any, door: Door) -> None:
    token, key, first, call = await asked(door, ada)
    first.leaves()
    await first.ends()
    for _ in range(2):
        resumed = door.get(token, "files", key, last_event_id=f"{call}:0")
        assert await door.viewed() == call
        resumed.leaves()
        await resumed.ends()
        assert resumed.sent.startswith(f"id: {call}:0\n".encode())
    await door.finish(call)
    last = door.get(token, "files", key, last_event_id=f"{call}:0")
    assert (await last.response())["result"]["content"] == [{"type": "text", "text": "done"}]
    assert f"id: {call}:1\n" in last.sent.decode()


async def test_all_calls_of_a_lost_connection_are_resumed_beside_the_streams_of_the_token(ada: Any, door: Door) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    key = await door.session(token, "files")
    calls = []
    for number in range(6):
        lost = door.legacy(token, "files", key, "tools/call", ECHO | {"arguments": {"number": number}}, id=number)
        calls.append(await door.viewed())
        lost.leaves()
        await lost.ends()
    standing = door.get(token, "files", key)
    resumed = [door.get(token, "files", key, last_event_id=f"{call}:0") for call in calls]
    async with asyncio.timeout(30):
        while not all(one.status for one in (standing, *resumed)):  # noqa: ASYNC110 - the application answers them
            await asyncio.sleep(0.01)
    assert [one.status for one in (standing, *resumed)] == [200] * 7
    for number, call in enumerate(calls):
        await door.finish(call)
        door.hint(f"call.{call}")
        assert (await resumed[number].response())["id"] == number
    standing.leaves()
    await standing.ends()
