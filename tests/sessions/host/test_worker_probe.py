"""*Test connection* through a real worker: live steps, a report or the cause of failure, and no connection left
open."""

import socket
import sys
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from servers.audit.record import Actor
from servers.configuration import Registration, ValueInput
from servers.enums import AuditAction, AuditOutcome, DraftState, TransportKind, ValueKind
from servers.models import AuditEvent, ServerDraft
from servers.registration import registering
from servers.registration.drafts import new_draft
from servers.secret import Secret
from sessions.connections import commands
from tests.peers.peers import closed_port
from tests.sessions.host.harness import EFFECT_SERVER, Effects, WorkerProcess, descendants, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def user(shared_worker: WorkerProcess) -> Any:
    return get_user_model().objects.get_or_create(username="ada", is_superuser=True)[0]


def draft_of(user: Any, *values: ValueInput, **fields: Any) -> ServerDraft:
    registration = Registration(name="Draft", values=list(values), **fields)
    return new_draft(Actor.of_user(user), user, registration)


def over(draft: ServerDraft, seconds: float = 40) -> ServerDraft:
    done = ServerDraft.objects.filter(pk=draft.pk, state__in=[DraftState.SUCCEEDED, DraftState.FAILED])
    return eventually(done.first, seconds, f"never over: {ServerDraft.objects.values().get(pk=draft.pk)}")


def newest_test() -> tuple[str, str]:
    """(outcome, user) of the newest audit event of a connection test."""
    event = AuditEvent.objects.filter(action=AuditAction.CONNECTION_TEST).order_by("-seq").first()
    assert event is not None
    return event.outcome, event.actor_name


def states(draft: ServerDraft) -> dict[str, str]:
    return {step["name"]: step["state"] for step in draft.steps}


def test_a_good_draft_walks_every_step_and_reports_what_the_server_is(
    user: Any, shared_worker: WorkerProcess, effects: Effects
) -> None:
    log = ValueInput(ValueKind.ENVIRONMENT, "EFFECT_LOG", False, str(effects.path))
    fields = {
        "command": sys.executable,
        "arguments": [str(EFFECT_SERVER)],
        "writable_paths": [str(effects.path.parent)],
    }
    draft = draft_of(user, log, transport=TransportKind.STDIO, **fields)
    assert commands.test_draft(Actor.of_user(user), draft)
    done = over(draft)
    assert done.state == DraftState.SUCCEEDED, done.detail
    assert states(done) == dict.fromkeys(("resolve", "connect", "handshake", "list"), "finished")
    assert all(step["seconds"] is not None for step in done.steps)
    assert (done.report["server_info"]["name"], done.report["tools"], done.report["prompts"]) == ("effects", 9, 0)
    assert effects.count("started") == 1
    assert newest_test() == (AuditOutcome.OK, "ada")
    eventually(lambda: not descendants(shared_worker.pid))


def test_a_draft_whose_message_was_lost_is_tested_by_the_tick(user: Any, effects: Effects) -> None:
    draft = draft_of(user, transport=TransportKind.STDIO, command="/nowhere/at/all")
    draft.save()
    done = over(draft)
    assert (done.state, done.fault, states(done)["resolve"]) == (DraftState.FAILED, "command_not_found", "failed")


def test_a_refused_address_fails_at_connect_with_its_cause(user: Any) -> None:
    url = f"http://127.0.0.1:{closed_port()}/mcp"
    draft = draft_of(user, transport=TransportKind.STREAMABLE_HTTP, url=url)
    commands.test_draft(Actor.of_user(user), draft)
    done = over(draft)
    assert (done.fault, states(done)) == ("connection_refused", {"resolve": "finished", "connect": "failed"})
    assert newest_test() == (AuditOutcome.FAILED, "ada")


def test_a_command_that_ends_at_once_shows_its_last_words_without_its_secret(user: Any) -> None:
    code = "import os, sys; print('bad key', os.environ['KEY'], file=sys.stderr); sys.exit(2)"
    key = ValueInput(ValueKind.ENVIRONMENT, "KEY", True, Secret("sk-12345678"))
    draft = draft_of(user, key, transport=TransportKind.STDIO, command=sys.executable, arguments=["-c", code])
    commands.test_draft(Actor.of_user(user), draft)
    done = over(draft)
    assert (done.state, done.fault) == (DraftState.FAILED, "process_exited")
    assert "bad key [redacted]" in done.stderr_tail


def test_a_draft_that_mcpadmin_itself_cannot_load_ends_too(user: Any) -> None:
    draft = draft_of(user, transport=TransportKind.STDIO, command=sys.executable, network_access="nowhere")
    commands.test_draft(Actor.of_user(user), draft)
    done = over(draft)
    assert (done.state, done.fault) == (DraftState.FAILED, "internal_error")


def test_a_test_ends_although_its_server_was_deleted_meanwhile(user: Any) -> None:
    actor = Actor.of_user(user)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        data = Registration(name="Draft", transport=TransportKind.STREAMABLE_HTTP, url=url)
        server = registering.register(actor, user, data)
        draft = new_draft(actor, user, data, server)
        registering.delete(actor, user, server)
        commands.test_draft(actor, draft)
        done = over(draft)
    assert (done.state, done.fault) == (DraftState.FAILED, "deleted")
    assert "was deleted during the connection test" in done.detail
    assert "started" not in states(done).values()
    assert newest_test() == (AuditOutcome.FAILED, "ada")
