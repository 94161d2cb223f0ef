"""What a server receives is whole; what is stored of it is masked, and sealed where that is switched on."""

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from servers.audit import payload_privacy, payloads
from servers.audit.record import Actor
from servers.audit.verify import verify
from servers.models import Definition, Payload, PrivacySettings, RedactionRule, Unredacted
from servers.secret import MASK
from sessions.calls import placing, repeating
from sessions.calls.placing import Rejected, SubmittedArguments
from sessions.enums import CallState
from sessions.models import Call, McpSession
from tests.servers.conftest import person
from tests.sessions.host.harness import Effects, WorkerProcess, await_ready, effect_session, ended, eventually

pytestmark = pytest.mark.integration
PASSWORD = "correct horse"


@pytest.fixture
def session(shared_worker: WorkerProcess, effects: Effects) -> McpSession:
    payload_privacy.forget()
    session = effect_session(effects)
    await_ready(session)
    eventually(lambda: Definition.objects.filter(server=session.server, key="login").exists())
    return session


def log_in(session: McpSession) -> Call:
    user = get_user_model().objects.filter(username="ann").first()
    user = user or person("ann", "view_server", "call_tool", "view_payload")
    given = SubmittedArguments(value={"user": "ann", "password": PASSWORD})
    return ended(placing.place(Actor.of_user(user), user, session.server, "login", given))


def stored(call: Call) -> tuple[dict[str, Any], dict[str, Any]]:
    return json.loads(payloads.read(call.arguments) or ""), json.loads(payloads.read(call.result) or "")


def test_the_server_receives_the_password_and_the_database_does_not(session: McpSession, effects: Effects) -> None:
    RedactionRule.objects.create(path="$.session", part="result", created_by_name="ada")
    payload_privacy.forget()

    def masked() -> Call | None:
        """The worker reads the rules again within seconds."""
        call = log_in(session)
        return call if call.result is not None and call.result.redacted == 2 else None

    call = eventually(masked)
    assert call.state == CallState.SUCCEEDED
    assert effects.count(f"password {PASSWORD}") >= 1
    arguments, result = stored(call)
    assert arguments == {"user": "ann", "password": MASK}
    assert result["content"][0]["text"] == f"welcome, ann: {MASK}"
    assert result["structuredContent"] == {"session": MASK, "n": 1}
    assert (call.arguments.redacted, call.result.redacted) == (1, 2)
    assert Unredacted.objects.count() == 0, "what was sent is kept no longer"
    assert verify().ok
    with pytest.raises(Rejected, match="masked"):
        repeating.repeat(Actor.of_user(call.user), call.user, call)


def test_sealed_arguments_reach_the_server_and_nothing_of_the_exchange_is_readable_in_the_database(
    session: McpSession, effects: Effects
) -> None:
    PrivacySettings.objects.create(pk=1, seal_payloads=True, mask_by_schema=False, mask_detected=False)
    payload_privacy.forget()
    call = log_in(session)
    assert effects.count(f"password {PASSWORD}") == 1
    assert json.loads(payloads.read(call.arguments) or "") == {"user": "ann", "password": PASSWORD}
    assert call.arguments.sealed is not None
    row = Payload.objects.get(pk=call.arguments_id)
    assert PASSWORD.encode() not in bytes(row.sealed) + row.text.encode()
