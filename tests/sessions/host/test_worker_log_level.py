"""The log level of a server is chosen on the Logs tab, in both eras, and survives a reconnect."""

import pytest
from django.test import Client

from servers.audit.record import Actor
from sessions.connections import commands
from sessions.models import LogLine, McpSession
from tests.sessions.host.harness import WorkerProcess, await_ready, ended, eventually
from tests.sessions.host.questions import begin, peer_session, person

pytestmark = pytest.mark.integration
ASKED = "The server was asked for log messages at level {} and above."


def lines(session: McpSession) -> list[str]:
    return list(LogLine.objects.filter(server=session.server).values_list("text", flat=True))


def choose(session: McpSession, level: str) -> None:
    """Choose the level on the page and wait until the server has it."""
    admin = Client()
    admin.force_login(person("grace"))
    path = f"/servers/{session.server.slug}/logs/"
    assert "Server log level" in admin.get(path).content.decode()
    assert admin.post(f"{path}level/", {"level": level}).status_code == 302
    assert f'<option value="{level}" selected' in " ".join(admin.get(path).content.decode().split())
    eventually(lambda: ASKED.format(level) in lines(session), 20, "the level was not set")


def test_a_modern_server_sends_what_was_chosen_and_after_a_reconnect_too(shared_worker: WorkerProcess) -> None:
    session = peer_session("sdk2", era="modern")
    ended(begin(session, "log", text="a detail", level="debug"))
    ended(begin(session, "log", text="a warning", level="warning"))
    eventually(lambda: "a warning" in lines(session))
    assert "a detail" not in lines(session)
    choose(session, "debug")
    ended(begin(session, "log", text="another detail", level="debug"))
    eventually(lambda: "another detail" in lines(session))
    commands.reconnect(Actor.of_user(person()), session)
    eventually(lambda: lines(session).count(ASKED.format("debug")) == 2, 30)
    await_ready(session)
    ended(begin(session, "log", text="one more detail", level="debug"))
    eventually(lambda: "one more detail" in lines(session))


def test_a_legacy_server_is_told_by_its_own_request(shared_worker: WorkerProcess) -> None:
    session = peer_session("everything")
    assert ASKED.format("error") not in lines(session)
    choose(session, "error")


def test_only_known_levels_are_taken_and_only_from_people_who_may_call(shared_worker: WorkerProcess) -> None:
    session = peer_session("sdk2", era="modern")
    admin, guest = Client(), Client()
    admin.force_login(person("grace"))
    guest.force_login(person("guest", superuser=False))
    path = f"/servers/{session.server.slug}/logs/level/"
    assert admin.post(path, {"level": "loud"}).status_code == 404
    assert guest.post(path, {"level": "debug"}).status_code in (403, 404)
    assert McpSession.objects.get().log_level == ""
