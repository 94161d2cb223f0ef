"""The first use of a server whose lists were never read: by a person without a credential there, through a bundle, and
while the audit log cannot be written."""

import asyncio
import json
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from servers.audit.writer import AuditUnavailable, Writer
from servers.bundles import exposed
from servers.enums import DefinitionKind, PolicyEffect, PolicyKind, SignsInAs
from servers.models import AgentPolicy, AgentRule, Bundle, BundleMember
from sessions import hints
from sessions.agents import requests
from sessions.models import Call, McpSession
from tests.sessions.agents.door import LEGACY, Door, make_listed, token_of
from tests.sessions.host.make import make_session
from tests.sessions.mcp.client.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = {"name": "files__echo", "arguments": {}}


@pytest.fixture(autouse=True)
def _without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a list, waits for ever."""
    monkeypatch.setattr(requests, "CONNECT_SECONDS", 3_600.0)


def bundle_of(*sessions: McpSession) -> Bundle:
    bundle = Bundle.objects.create(slug="team", name="Team")
    for one in sessions:
        BundleMember.objects.create(bundle=bundle, server=one.server, alias=one.server.slug, tools=["*"])
    return bundle


def a_bundle_that_denies_a_tool_of_a_list_that_was_not_read() -> None:
    session = make_listed("files")
    bundle = bundle_of(session)
    exposed.assign(bundle.pk, DefinitionKind.TOOL, {(str(session.server.uid), "echo"): "files"})
    session.catalog_counts = {"tool": {"problem": "It took too long."}}
    session.save()
    policy = AgentPolicy.objects.create(bundle=bundle)
    AgentRule.objects.create(policy=policy, kind=PolicyKind.TOOL, pattern="files__*", effect=PolicyEffect.DENY)


async def test_a_person_who_needs_a_credential_of_their_own_is_told_so(ada: Any, door: Door) -> None:
    await door.thread(make_session, "personal", signs_in_as=SignsInAs.PERSONAL)
    asked = door.modern(await door.thread(token_of, ada), "personal", "tools/list", id=7)
    error = (await asked.response())["error"]
    assert asked.status == 403
    assert error["message"] == "Personal requires your own credential. Add one under Identity."


async def test_a_member_that_needs_a_credential_of_ones_own_delays_no_other_one(ada: Any, door: Door) -> None:
    personal = partial(make_session, "personal", signs_in_as=SignsInAs.PERSONAL)
    await door.thread(lambda: bundle_of(make_listed("files"), personal()))
    result = (await door.modern(await door.thread(token_of, ada), "team", "tools/list").response())["result"]
    assert [tool["name"] for tool in result["tools"]] == ["files__echo"]
    assert result["_meta"]["mcpadmin/members"] == {"files": "ok", "personal": "needs your own credential"}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_through_a_bundle_stays_one_of_the_bundle_where_its_list_was_not_read(
    ada: Any, door: Door, era: str
) -> None:
    await door.thread(a_bundle_that_denies_a_tool_of_a_list_that_was_not_read)
    token = await door.thread(token_of, ada)
    if era == "legacy":
        asked = door.legacy(token, "team", await door.session(token, "team"), "tools/call", ECHO)
    else:
        asked = door.modern(token, "team", "tools/call", ECHO)
    result = (await asked.response())["result"]
    assert result["isError"]
    assert "Rule “Deny files__*” of the bundle Team." in result["content"][0]["text"]


def a_bundle_with_a_member_that_starts() -> None:
    files, slow = make_listed("files"), make_session("slow")
    bundle = bundle_of(files, slow)
    bundle.members.update(resources=["*"])
    targets = {(str(one.server.uid), "echo"): one.server.slug for one in (files, slow)}
    exposed.assign(bundle.pk, DefinitionKind.TOOL, targets)


async def test_a_member_that_starts_delays_no_call_of_another_one(ada: Any, door: Door) -> None:
    await door.thread(a_bundle_with_a_member_that_starts)
    token = await door.thread(token_of, ada)
    asked = door.modern(token, "team", "tools/call", ECHO)
    call = await door.viewed()
    await door.finish(call)
    door.hint(f"call.{call}")
    assert (await asked.response())["result"]["content"] == [{"type": "text", "text": "done"}]
    for name in ("slow__echo", "files__unknown"):
        waiting = door.modern(token, "team", "tools/call", ECHO | {"name": name})
        await until(lambda: any(topic.startswith("server.") for topic in door.hub._watchers))
        assert waiting.open
        waiting._task.cancel()
        with suppress(asyncio.CancelledError):
            await waiting._task


@pytest.mark.parametrize(("id", "elsewhere"), [(7, False), ("x" * 300, False), (7, True)])
async def test_a_call_that_was_cancelled_before_the_list_of_its_server_was_read_is_not_placed(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch, id: Any, elsewhere: bool
) -> None:
    """`elsewhere`: the cancellation reaches another web process."""
    heard: list[dict[str, Any]] = []

    def publish(topic: str, seq: int | None, kind: str, rows: Any = None, **more: Any) -> None:
        if topic == hints.AGENT_CANCELLATIONS:
            heard.append({"t": topic, "seq": seq, "kind": kind, "rows": rows})

    monkeypatch.setattr(hints, "publish", publish)
    session = await door.thread(make_listed, "files")
    counts, session.catalog_counts = session.catalog_counts, {}
    await door.thread(session.save)
    token = await door.thread(token_of, ada)
    key = await door.session(token, "files")
    topic = f"server.{session.server.uid}"
    call = {"name": "echo", "arguments": {}}
    asked = door.legacy(token, "files", key, "tools/call", call, id=id)
    another = door.legacy(token, "files", key, "tools/call", {"name": "echo", "arguments": {"text": "b"}}, id=8)
    await until(lambda: len(door.hub._watchers.get(topic, ())) == 2)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
    told = (Door() if elsewhere else door).post(
        token, "files", cancelled, mcp_session_id=key, mcp_protocol_version=LEGACY
    )
    await told.ends()
    assert told.status == 202
    assert len(heard) == elsewhere
    for hint in heard:
        door.hub._received(hint)
    session.catalog_counts = counts
    await door.thread(session.save)
    door.hint(topic)
    await asked.ends()
    assert b"jsonrpc" not in asked.sent
    uid = await door.viewed()
    await door.finish(uid)
    door.hint(f"call.{uid}")
    assert (await another.response())["id"] == 8
    assert [uid] == await door.thread(lambda: list(Call.objects.values_list("uid", flat=True)))
    arriving = door.application.shared.calls.arriving
    assert not arriving._requests
    assert not arriving._cancelled


async def test_what_an_agent_follows_is_acknowledged_before_a_member_has_started(ada: Any, door: Door) -> None:
    await door.thread(a_bundle_with_a_member_that_starts)
    uris = ["note://files.mcp/one", "note://slow.mcp/two", "note://slow.mcp/three"]
    asked = {"notifications": {"resourceSubscriptions": uris}}
    listening = door.modern(await door.thread(token_of, ada), "team", "subscriptions/listen", asked)
    await until(lambda: b"acknowledged" in listening.sent)
    [line] = [line for line in listening.sent.decode().splitlines() if "acknowledged" in line]
    assert json.loads(line.removeprefix("data: "))["params"]["notifications"] == {"resourceSubscriptions": uris}
    listening.leaves()
    await listening.ends()


async def test_a_request_that_needs_an_audit_event_is_refused_as_one_to_repeat_while_there_is_no_audit_log(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await door.thread(token_of, ada)
    await door.thread(make_session, "files")

    def refuse(*given: Any, **more: Any) -> Any:
        raise AuditUnavailable("The audit log cannot be written.")

    monkeypatch.setattr(Writer, "submit_and_wait", refuse)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
    opening = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": hello}
    for asked in (door.modern(token, "files", "tools/list", id=7), door.post(token, "files", opening)):
        found = await asked.response()
        assert (asked.status, asked.headers["retry-after"]) == (503, "2")
        assert (found["id"], found["error"]["code"], found["error"]["data"]["retrySafe"]) == (7, 5030, True)
