"""A worker uses every transport, detects it where the registration leaves it open, remembers the result, and serves
roots."""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from servers.audit.record import Actor
from servers.enums import TransportKind
from servers.models import Definition, Server
from servers.registration import registering
from servers.registration.registering import Registration
from sessions.connections import commands
from sessions.enums import SubscriptionState
from sessions.models import LogLine, McpSession, Subscription
from sessions.subscriptions import subscribing, watches
from tests.peers.peers import start_peer
from tests.sessions.host.harness import (
    Effects,
    WorkerProcess,
    await_ready,
    command_line,
    descendants,
    ended,
    eventually,
    wake,
)
from tests.sessions.host.make import make_call, make_session

CURIOUS_SERVER = Path(__file__).with_name("curious_server.py")
ROOT, OTHER = {"uri": "file:///srv/data", "name": "Data"}, {"uri": "file:///srv/other", "name": ""}
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def faces() -> Iterator[str]:
    """One server on the SDK 1.x with all transports: /mcp, /sse and /ws."""
    peer = start_peer("sdk1", "all")
    yield peer.url.removesuffix("/mcp")
    peer.stop()


def session_of(transport: TransportKind, url: str) -> McpSession:
    return make_session(transport=transport, command="", url=url)


def websocket(faces: str) -> str:
    return faces.replace("http://", "ws://") + "/ws"


@pytest.mark.parametrize(
    ("transport", "path", "found"),
    [
        (TransportKind.AUTO_HTTP, "/mcp", "streamable_http"),
        (TransportKind.AUTO_HTTP, "/sse", "http_sse"),
        (TransportKind.STREAMABLE_HTTP, "/mcp", "streamable_http"),
        (TransportKind.HTTP_SSE, "/sse", "http_sse"),
        (TransportKind.WEBSOCKET, "/ws", "websocket"),
    ],
)
def test_a_server_behind_a_url_opens_lists_and_takes_a_call(
    transport: TransportKind, path: str, found: str, shared_worker: WorkerProcess, faces: str
) -> None:
    url = websocket(faces) if transport == TransportKind.WEBSOCKET else faces + path
    session = session_of(transport, url)
    row = await_ready(session)
    assert (row.transport, row.era, row.url) == (found, "legacy", url)
    assert row.decided_by
    assert row.decided_at
    assert (row.remembered["kind"], row.remembered["revision"]) == (found, row.revision)
    eventually(lambda: Definition.objects.filter(server=session.server, key="echo").exists())
    call = make_call(session, "echo", text="over " + found)
    wake(call)
    assert "over " + found in str(ended(call).result.text)


def test_a_transport_that_was_chosen_is_the_only_one_tried(shared_worker: WorkerProcess, faces: str) -> None:
    session = session_of(TransportKind.STREAMABLE_HTTP, faces + "/sse")
    row = eventually(McpSession.objects.filter(pk=session.pk).exclude(fault="").first)
    assert row.transport == ""
    assert row.fault_detail


@pytest.mark.parametrize("transport", [TransportKind.WEBSOCKET, TransportKind.HTTP_SSE])
def test_a_watched_resource_over_the_message_limit_ends_the_session_once(
    transport: TransportKind, admin: Any, tmp_path: Path
) -> None:
    board = tmp_path / "board"
    board.write_text("x" * 200_000)
    peer = start_peer("sdk1", "all", env={"BOARD_FILE": str(board)})
    try:
        faces = peer.url.removesuffix("/mcp")
        session = session_of(transport, websocket(faces) if transport == TransportKind.WEBSOCKET else faces + "/sse")
        Server.objects.update(limits={"message_bytes": 65_536})
        McpSession.objects.update(restart_requested=1)
        await_ready(session)
        row = subscribing.subscribe(Actor.of_user(admin), admin, session.server, "peer://board")
        mine = Subscription.objects.filter(pk=row.pk)
        eventually(mine.filter(read_fault=watches.ENDED_SESSION).first)
        eventually(mine.filter(state=SubscriptionState.LISTENING, gaps__isnull=False).first)
        ready_since = await_ready(session).state_since
        call = make_call(session, "echo", text="still here")
        wake(call)
        assert "still here" in str(ended(call).result.text)
        time.sleep(2)
        assert McpSession.objects.get().state_since == ready_since
        assert "over the limit" in mine.get().read_detail or "exceeds" in mine.get().read_detail
    finally:
        peer.stop()


# --- detection ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def admin(shared_worker: WorkerProcess) -> Any:
    return get_user_model().objects.create_superuser("ada", password="x")


def curious(admin: Any, effects: Effects, **fields: Any) -> tuple[Server, Registration]:
    environment = {"EFFECT_LOG": str(effects.path), "ERA": fields.pop("speaks", "legacy")}
    values = [registering.ValueInput("environment", name, False, value) for name, value in environment.items()]
    data = Registration(
        **{
            "name": "Curious",
            "transport": TransportKind.STDIO,
            "command": sys.executable,
            "arguments": [str(CURIOUS_SERVER)],
            "writable_paths": [str(effects.path.parent)],
            "answers_sampling": False,
            "answers_elicitation": False,
            "values": values,
            **fields,
        }
    )
    return registering.register(Actor.of_user(admin), admin, data), data


def session_row(server: Server) -> McpSession:
    return eventually(McpSession.objects.filter(server=server).select_related("server").first)


def change(admin: Any, server: Server, data: Registration, **fields: Any) -> None:
    kept = {name: getattr(data, name) for name in data.__dataclass_fields__} | fields
    version = Server.objects.get(pk=server.pk).version
    registering.change(Actor.of_user(admin), admin, server, Registration(**kept), version)


def test_an_era_that_was_found_is_not_asked_for_again_until_a_person_reconnects(
    admin: Any, effects: Effects, shared_worker: WorkerProcess
) -> None:
    server, _ = curious(admin, effects)
    session = await_ready(session_row(server))
    assert effects.count("probed") == 1
    child = next(pid for pid in descendants(shared_worker.pid) if "curious_server" in command_line(pid))
    os.kill(child, signal.SIGKILL)
    eventually(lambda: effects.count("declared") >= 2)
    await_ready(session)
    assert effects.count("probed") == 1
    commands.reconnect(Actor.of_user(admin), session)
    eventually(lambda: effects.count("declared") >= 3)
    assert effects.count("probed") == 2


def test_a_changed_registration_forgets_what_was_found_out(admin: Any, effects: Effects) -> None:
    server, data = curious(admin, effects)
    await_ready(session_row(server))
    change(admin, server, data, request_timeout_seconds=61)
    eventually(lambda: effects.count("probed") == 2)


# --- roots -------------------------------------------------------------------------------------------------------------
def test_changed_roots_are_reported_to_a_live_session_which_lives_on(admin: Any, effects: Effects) -> None:
    server, data = curious(admin, effects, roots=[ROOT])
    session = await_ready(session_row(server))
    assert session.client_capabilities == {"roots": {"listChanged": True}}
    eventually(lambda: effects.count('roots {"roots": [{"uri": "file:///srv/data", "name": "Data"}]}') == 1)
    change(admin, server, data, roots=[OTHER])
    eventually(lambda: effects.count('roots {"roots": [{"uri": "file:///srv/other"}]}') == 1)
    assert effects.count("started") == 1
    eventually(LogLine.objects.filter(text__contains="Roots changed: 1 now").exists)


def test_without_roots_they_are_not_declared_and_added_ones_wait_for_a_reconnect(admin: Any, effects: Effects) -> None:
    server, data = curious(admin, effects)
    session = await_ready(session_row(server))
    assert effects.count("declared {}") == 1
    change(admin, server, data, roots=[ROOT])
    eventually(LogLine.objects.filter(text__contains="when it reconnects").exists)
    commands.reconnect(Actor.of_user(admin), session)
    eventually(lambda: effects.count('roots {"roots"') == 1)


def test_a_modern_server_asks_for_the_roots_of_now_in_a_round(admin: Any, effects: Effects) -> None:
    server, data = curious(admin, effects, roots=[ROOT], speaks="modern")
    session = await_ready(session_row(server))
    change(admin, server, data, roots=[OTHER])
    eventually(LogLine.objects.filter(text__contains="Roots changed").exists)
    call = make_call(session, "list_roots")
    wake(call)
    assert ended(call).state == "succeeded"
    assert effects.count('roots {"roots": [{"uri": "file:///srv/other"}]}') == 1


# --- lists -------------------------------------------------------------------------------------------------------------
def test_a_modern_server_is_asked_to_tell_of_changed_lists_and_they_arrive(admin: Any, effects: Effects) -> None:
    server, _ = curious(admin, effects, speaks="modern")
    session = await_ready(session_row(server))
    assert session.era == "modern"
    eventually(lambda: effects.count("listen") == 1)
    eventually(lambda: Definition.objects.filter(server=server, key="grow").exists())
    call = make_call(session, "grow")
    wake(call)
    eventually(lambda: Definition.objects.filter(server=server, key="extra-2").exists())


def test_a_modern_server_learns_the_trace_of_a_call_and_which_messages_are_wanted(admin: Any, effects: Effects) -> None:
    server, _ = curious(admin, effects, speaks="modern")
    session = await_ready(session_row(server))
    eventually(lambda: effects.count("listen") == 1)
    call = make_call(session, "grow")
    wake(call)
    ended(call)
    (line,) = [line for line in effects.lines() if line.startswith("trace")]
    assert re.fullmatch(rf"trace 00-{call.uid.hex}-[0-9a-f]{{16}}-01 info", line)


def test_a_legacy_server_is_sent_nothing_that_its_revision_does_not_know(admin: Any, effects: Effects) -> None:
    server, _ = curious(admin, effects)
    call = make_call(await_ready(session_row(server)), "grow")
    wake(call)
    ended(call)
    assert effects.count("trace None None") == 1


def test_a_list_over_the_servers_own_limit_is_cut_and_says_so(shared_worker: WorkerProcess, faces: str) -> None:
    session = session_of(TransportKind.AUTO_HTTP, faces + "/mcp")
    Server.objects.update(limits={"list_items": 3})
    McpSession.objects.update(restart_requested=1)
    await_ready(session)
    cuts = eventually(lambda: McpSession.objects.get().catalog_cuts)
    assert cuts == {"tool": ["list_limit", "Only the first 3 entries were read."]}
    assert Definition.objects.filter(server=session.server, kind="tool", removed_at=None).count() == 3
