"""What the HTTP API says of a call to people with different permissions."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from servers.agents import tokens
from servers.agents.tokens import NewToken
from servers.audit import payloads
from servers.audit import writer as writing
from servers.audit.record import Actor
from servers.enums import AuditAction, PayloadKind
from servers.models import AuditEvent
from sessions.api import calls
from sessions.api.asking import Caller
from sessions.api.problems import Problem
from sessions.enums import CallState
from sessions.mcp.core.refusals import with_words
from sessions.models import Call
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db
WORDS = "customer 4711"


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def call() -> Call:
    """Of bob, ended with an error."""
    made = make_call(make_session("orders"), "ship", text=WORDS)
    bob = person("bob", "view_server", "call_tool")
    ended = {"state": CallState.RPC_ERROR, "finished_at": timezone.now(), "user": bob, "user_name": "bob"}
    said = {"error_code": -32000, "error_message": f"no {WORDS}", "error_data": json.dumps({"row": WORDS})}
    progress = {"progress": 1.0, "progress_total": 3.0, "progress_message": f"sending {WORDS}"}
    result = payloads.store(PayloadKind.RESULT, json.dumps({"content": WORDS}))
    detail = with_words("It was refused.", WORDS)
    Call.objects.filter(pk=made.pk).update(**ended, **said, **progress, detail=detail, result=result)
    return Call.objects.select_related("user").get(pk=made.pk)


def shown(user: Any, call: Call) -> dict[str, Any]:
    issued = tokens.issue(Actor.of_user(user), user, NewToken("laptop", 7, ["mcp:history"]))
    caller = Caller(tokens.principal_of(issued.text, ""), "192.0.2.7", "request-0001")
    found: dict[str, Any] = json.loads(calls._detail(caller, call.uid).text)
    return found


def test_the_words_of_the_server_are_for_those_who_may_read_the_call(call: Call) -> None:
    for reader in (call.user, person("rita", "view_server", "call_tool", "view_payload")):
        found = shown(reader, call)
        assert found["readable"]
        assert found["error"] == {"code": -32000, "message": f"no {WORDS}", "data": {"row": WORDS}}
        assert found["progress"]["message"] == f"sending {WORDS}"
        assert found["detail"] == f'It was refused. The server says: "{WORDS}"'
    found = shown(person("eve", "view_server", "call_tool"), call)
    assert WORDS not in json.dumps(found)
    assert (found["readable"], found["detail"]) == (False, "It was refused.")
    assert found["error"] == {"code": -32000, "message": "", "data": None}
    assert found["progress"] == {"progress": 1.0, "total": 3.0, "message": ""}


def test_cancelling_a_call_of_another_token_is_refused_and_recorded(call: Call) -> None:
    issued = tokens.issue(Actor.of_user(call.user), call.user, NewToken("laptop", 7, ["mcp:call", "mcp:history"]))
    caller = Caller(tokens.principal_of(issued.text, ""), "192.0.2.7", "request-0001")
    with pytest.raises(Problem) as refused:
        calls._cancel(caller, call.uid)
    assert (refused.value.status, refused.value.kind) == (403, "forbidden")
    event = AuditEvent.objects.get(action=AuditAction.PERMISSION_DENY)
    assert (event.actor_name, event.way, event.ip, event.subject) == ("bob", "agent", "192.0.2.7", "ship")
