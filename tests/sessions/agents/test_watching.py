"""An agent that waits with its call: a database that is away for a moment, a request that fails, an agent that left."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from servers.agents import tokens
from servers.audit import writer
from servers.audit.record import Actor
from servers.bundles import changing
from servers.enums import AuditAction, AuditOutcome
from servers.models import AgentToken, AuditEvent
from sessions.agents import answer as answer_module
from sessions.agents import changes
from sessions.agents.answer import Answer, TooSlow
from sessions.agents.calls import viewer
from sessions.calls import placing
from sessions.enums import CallState
from sessions.models import AgentCall, AgentFollow, AgentSession, Call
from tests.sessions.agents.door import LEGACY, META, MODERN, Asked, Door, make_listed, token_of
from tests.sessions.subscriptions.rows import make_subscription

pytestmark = pytest.mark.django_db(transaction=True)
AWAY = OperationalError("the database system is shutting down")
ECHO = {"name": "echo", "arguments": {}}


class Broken:
    """Reads of updates, which fail."""

    async def get(self, key: Any) -> Any:
        raise AWAY


@pytest.fixture
def token(ada: Any) -> str:
    return token_of(ada)


@pytest.fixture
def session(ada: Any) -> Any:
    return make_listed("files")


async def unheard(door: Door, call: Any) -> bool:
    """After what was to be written before."""

    def work() -> bool:
        writer.writer().submit_and_wait(lambda: None)
        return AgentCall.objects.get(call__uid=call).unheard_at is not None

    return await door.thread(work)


async def test_an_agent_waits_on_while_the_database_is_away_and_gets_its_response(
    door: Door, token: str, session: Any
) -> None:
    asked = door.modern(token, "files", "tools/call", ECHO)
    call = await door.viewed()
    door.database.problem = AWAY
    door.hint(f"call.{call}")
    await asyncio.wait_for(door.database.refused.wait(), 30)
    await door.finish(call)
    door.database.problem = None
    assert (await asked.response())["result"]["content"] == [{"type": "text", "text": "done"}]
    assert not await unheard(door, call)


async def test_a_request_that_comes_while_the_database_is_away_is_told_to_come_back(
    door: Door, token: str, session: Any
) -> None:
    door.database.problem = AWAY
    asked = door.modern(token, "files", "tools/call", ECHO, id=7)
    error = await asked.response()
    assert (asked.status, asked.headers["retry-after"]) == (503, "2")
    assert error["error"]["message"] == "The database is not responding. Try again in a moment."


async def test_an_agent_that_leaves_while_the_database_is_away_is_noticed_at_once(
    door: Door, token: str, session: Any
) -> None:
    asked = door.modern(token, "files", "tools/call", ECHO)
    call = await door.viewed()
    door.database.problem = AWAY
    door.hint(f"call.{call}")
    await asyncio.wait_for(door.database.refused.wait(), 30)
    asked.leaves()
    await asked.ends()
    door.database.problem = None
    assert await unheard(door, call)


async def test_a_call_whose_request_fails_counts_as_not_heard(door: Door, token: str, session: Any) -> None:
    asked = door.modern(token, "files", "tools/call", ECHO)
    call = await door.viewed()
    door.database.problem = RuntimeError("a bug")
    door.hint(f"call.{call}")
    await asked.ends()
    door.database.problem = None
    assert asked.status == 500
    assert await unheard(door, call)


async def test_updates_that_cannot_be_read_do_not_take_the_place_of_the_response(
    door: Door, token: str, session: Any
) -> None:
    key = await door.session(token, "files")

    def follows() -> None:
        row = make_subscription(session, "note://one")
        AgentFollow.objects.create(
            session=AgentSession.objects.get(key=key), subscription=row, uri=row.uri, renewed_at=timezone.now()
        )

    await door.thread(follows)
    door.application.shared.stream_reads.events = Broken()  # type: ignore[assignment]  # as a database that is away
    asked = door.legacy(token, "files", key, "tools/call", ECHO)
    call = await door.viewed()
    await door.finish(call)
    door.hint(f"call.{call}")
    assert (await asked.response())["result"]["content"] == [{"type": "text", "text": "done"}]


async def test_the_same_call_is_known_again_whatever_the_order_of_its_arguments(
    door: Door, token: str, session: Any
) -> None:
    """Models and programs write them again for each request."""
    key = await door.session(token, "files")
    calls = []
    for number, arguments in enumerate(
        ({"to": "ann", "what": {"a": 1, "b": 2}}, {"what": {"b": 2, "a": 1}, "to": "ann"})
    ):
        params = {"name": "echo", "arguments": arguments}
        asked = door.legacy(token, "files", key, "tools/call", params, id=number)
        calls.append(await door.viewed())
        asked.leaves()
        await asked.ends()
    assert calls[0] == calls[1]


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("progress", {"progress": float("nan"), "total": 1.0}),
        ("progress", {"progress": 1.0, "total": float("inf")}),
        ("progress", {"progress": True}),
        ("log", {"level": "info", "logger": "", "text": "[NaN]", "json": True}),
        ("log", {"level": "info", "logger": "", "text": '"\\ud800"', "json": True}),
    ],
)
async def test_a_forged_hint_with_what_json_does_not_have_ends_no_call(
    door: Door, token: str, session: Any, kind: str, row: dict[str, Any]
) -> None:
    meta = {"progressToken": 1, META + "logLevel": "debug"}
    asked = door.modern(token, "files", "tools/call", {**ECHO, "_meta": meta})
    call = await door.viewed()
    door.hub._received({"t": f"call.{call}", "seq": None, "kind": kind, "rows": [row]})
    await asyncio.sleep(0.1)
    await door.finish(call)
    door.hint(f"call.{call}")
    assert (await asked.response())["result"]["content"] == [{"type": "text", "text": "done"}]
    assert b'"progress":true' not in asked.sent


async def test_a_token_that_is_revoked_while_it_is_read_is_not_remembered(
    door: Door, token: str, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint of its end came first."""
    read, admission = tokens.principal_of, door.application.shared.admission

    def revoked_afterwards(text: str, address: str) -> Any:
        found = read(text, address)
        AgentToken.objects.update(revoked_at=timezone.now())
        admission.forget()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(tokens, "principal_of", revoked_afterwards)
        await door.modern(token, "files", "tools/list").ends()
    asked = door.modern(token, "files", "tools/list")
    await asked.ends()
    assert asked.status == 401


async def first_revision(door: Door, token: str) -> dict[str, str]:
    """The header of a session that takes batches."""
    hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    opened = door.post(token, "files", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    await opened.ends()
    return {"mcp_session_id": opened.headers["mcp-session-id"]}


async def test_a_batch_of_several_calls_with_one_key_is_refused_as_a_whole(
    door: Door, token: str, session: Any
) -> None:
    """Which of them the key means is not known: the others would be refused, or taken for the first."""
    key = await first_revision(door, token)
    both = [{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": ECHO} for id in (1, 2)]
    asked = door.post(token, "files", both, **key, idempotency_key="one")
    assert (await asked.response())["error"]["code"] == -32600
    assert not await door.thread(Call.objects.exists)
    beside = [both[0], {"jsonrpc": "2.0", "id": 3, "method": "ping"}]
    asked = door.post(token, "files", beside, **key, idempotency_key="one")
    await door.finish(await door.viewed())
    asked.leaves()
    await asked.ends()


async def test_a_batch_whose_requests_were_all_cancelled_is_answered_with_nothing(
    door: Door, token: str, session: Any
) -> None:
    """An empty array is no JSON-RPC message."""
    key = await first_revision(door, token)
    asked = door.post(token, "files", [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ECHO}], **key)
    call = await door.viewed()
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    await door.post(token, "files", cancelled, **key).ends()
    door.hint(f"call.{call}")
    await asked.ends()
    assert b"[" not in asked.sent


def cancellation(id: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


async def test_a_request_whose_cancellation_came_in_the_same_batch_is_not_placed(
    door: Door, token: str, session: Any
) -> None:
    key = await first_revision(door, token)
    both = [{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": ECHO} for id in (1, 2)]
    both[1]["params"] = {"name": "echo", "arguments": {"text": "b"}}
    asked = door.post(token, "files", [*both, cancellation(1)], **key)
    call = await door.viewed()
    await door.finish(call)
    door.hint(f"call.{call}")
    await asked.ends()
    assert [one["id"] for one in json.loads(asked.sent)] == [2]
    assert [call] == await door.thread(lambda: list(Call.objects.values_list("uid", flat=True)))
    alone = door.post(token, "files", [both[0] | {"id": 3}, cancellation(3)], **key)
    await alone.ends()
    assert b"jsonrpc" not in alone.sent
    assert await door.thread(Call.objects.count) == 1


async def test_a_cancellation_that_comes_while_the_call_is_placed_cancels_it(
    door: Door, token: str, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await door.session(token, "files")
    headers = {"mcp_session_id": key, "mcp_protocol_version": LEGACY}
    place = placing.aplace

    async def late(*given: Any, **more: Any) -> Call:
        told = door.post(token, "files", cancellation(1), **headers)
        await told.ends()
        assert told.status == 202
        return await place(*given, **more)

    monkeypatch.setattr(placing, "aplace", late)
    asked = door.legacy(token, "files", key, "tools/call", ECHO)
    await asked.ends()
    assert b"jsonrpc" not in asked.sent
    call = await door.thread(Call.objects.get)
    assert (call.state, call.sent_at) == (CallState.CANCELLED, None)
    assert (await door.thread(AgentCall.objects.get)).cancelled_at is not None
    cancels = AuditEvent.objects.filter(action=AuditAction.CALL_CANCEL, outcome=AuditOutcome.OK)
    assert await door.thread(cancels.count) == 1


async def test_a_long_response_of_a_batch_waits_while_the_agent_reads_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backlog, now, written = 0, 0.0, list[bytes]()

    async def send(message: dict[str, Any]) -> None:
        nonlocal backlog
        backlog += len(message.get("body", b""))
        written.append(message.get("body", b"")[:40])

    monkeypatch.setattr(answer_module, "time", SimpleNamespace(monotonic=lambda: now))
    answer = Answer(send, "text/event-stream", lambda: backlog, "request-0001")
    bodies = [letter * (answer_module.MOST_BYTES + 1) for letter in (b"a", b"b")]
    responses = [asyncio.create_task(answer.response(body)) for body in bodies]
    for _ in range(4):  # it reads, if slowly
        await asyncio.sleep(0.1)
        backlog -= 1
        await answer.keep_alive()
        now += answer_module.STUCK_SECONDS - 1
    assert [task.done() for task in responses] == [True, False]
    backlog = 0
    await asyncio.gather(*responses)
    assert [b"bbb" in one for one in written if one.startswith(b"event")] == [False, True]
    await answer.keep_alive()
    now += answer_module.STUCK_SECONDS + 1
    with pytest.raises(TooSlow):  # it reads no more
        await answer.response(b"c")


async def test_nothing_is_placed_for_a_modern_agent_that_left_before(door: Door, token: str, session: Any) -> None:
    asked = door.modern(token, "files", "tools/call", ECHO)
    asked.leaves()
    await asked.ends()
    assert not await door.thread(Call.objects.exists)


async def test_a_call_is_not_cancelled_while_a_retry_of_its_agent_waits_for_it(
    door: Door, token: str, session: Any
) -> None:
    """The end of the connection that was lost may be noticed after the retry."""

    def request(id: int) -> Asked:
        meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
        body = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {**ECHO, "_meta": meta}}
        headers = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "echo"}
        return door.post(token, "files", body, **headers, idempotency_key="one")

    first = request(1)
    call = await door.viewed()
    retry = request(2)
    async with asyncio.timeout(30):
        while len(door.hub._watchers[f"call.{call}"]) < 2:  # noqa: ASYNC110 - another thread finds the call
            await asyncio.sleep(0.01)
    first.leaves()
    await first.ends()
    assert (await door.thread(Call.objects.get)).state == CallState.REQUESTED
    await door.finish(call)
    door.hint(f"call.{call}")
    assert (await retry.response())["result"]["content"] == [{"type": "text", "text": "done"}]


@pytest.mark.parametrize("name", ["echo", "nothing"])
async def test_an_agent_without_the_scope_is_not_told_which_tools_a_bundle_has(
    door: Door, ada: Any, session: Any, name: str
) -> None:
    def joined() -> str:
        wanted = changing.BundleInput("Team", [changing.Membership(session.server, "files")], "team")
        changing.create(Actor.of_user(ada), ada, wanted)
        return token_of(ada, "read")

    token = await door.thread(joined)
    asked = door.modern(token, "team", "tools/call", {"name": f"files__{name}", "arguments": {}})
    found = await asked.response()
    assert (asked.status, found["error"]["data"]) == (403, {"requiredScope": "mcp:call"})
    assert "/mcp/team" in asked.headers["www-authenticate"]


async def contains(asked: Asked, comments: int) -> None:
    async with asyncio.timeout(30):
        while asked.sent.count(b":\n\n") < comments:
            assert asked.open, asked.sent
            await asyncio.sleep(0.01)


async def test_a_stream_on_which_nothing_happens_is_opened_and_kept_alive(
    door: Door, token: str, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (viewer, changes):
        monkeypatch.setattr(module, "KEEP_ALIVE_SECONDS", 0.02)
    monkeypatch.setattr(viewer, "OPEN_SECONDS", 0.02)
    key = await door.session(token, "files")
    silent = [
        door.modern(token, "files", "tools/call", ECHO),
        door.modern(token, "files", "subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
        door.get(token, "files", key),
    ]
    for asked in silent:
        await contains(asked, 3)
        assert asked.headers["content-type"].startswith("text/event-stream")
    json_only = door.post(
        token,
        "files",
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"a": 1}}},
        mcp_session_id=key,
        mcp_protocol_version=LEGACY,
        accept="application/json",
    )
    await contains(silent[0], 20)
    assert (json_only.open, json_only.sent) == (True, b"")
    for asked in (*silent, json_only):
        asked.leaves()
        await asked.ends()
