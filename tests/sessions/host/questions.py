"""What tests of the inbox do behind the pages: wait for a question, answer it as somebody, read how it ended."""

import json
from typing import Any

from django.contrib.auth import get_user_model

from servers.audit import payloads
from servers.audit.record import Actor
from sessions.domain import inbox
from sessions.domain.inbox import Action, Given
from sessions.models import Call, McpSession, Question
from tests.peers.peers import peer_command
from tests.sessions.client.answers import asking
from tests.sessions.host.harness import await_ready, ended, eventually, ring
from tests.sessions.host.make import make_call, make_session


def peer_session(name: str, *, era: str = "auto", **fields: Any) -> McpSession:
    """Of a peer over stdio, ready, its tools known."""
    command, arguments = peer_command(name, "stdio")
    session = make_session(command=command, arguments=arguments, era=era, **fields)
    await_ready(session, 40)
    eventually(lambda: session.server.definitions.filter(kind="tool").exists())
    return session


def asking_session(slug: str = "asking", **fields: Any) -> McpSession:
    """Of a scripted legacy server that asks whatever its caller wants, ready."""
    spec = asking()
    session = make_session(slug, command=spec.command, arguments=list(spec.args), era="legacy", **fields)
    return await_ready(session)


def person(name: str = "ada", *, superuser: bool = True) -> Any:
    people = get_user_model()._default_manager
    return people.filter(username=name).first() or people.create_user(name, is_superuser=superuser)


def begin(session: McpSession, tool: str, **arguments: Any) -> Call:
    """A call on its way."""
    call = make_call(session, tool, **arguments)
    ring(call)
    return call


def asked_by(call: Call, seconds: float = 20) -> Question:
    """The open question that the call waits for."""
    open_ones = Question.objects.filter(call=call, state="open").select_related("call", "server", "question")
    return eventually(open_ones.first, seconds, f"{call.target} asked nothing")


def open_question(session: McpSession) -> Question:
    found = Question.objects.filter(server=session.server, state="open").select_related("call", "server", "question")
    return eventually(found.first, 20, "the server asked nothing")


def answer(question: Question, action: Action, value: Any = None, *, by: str = "grace") -> bool:
    user = person(by)
    return inbox.answer(Actor.of_user(user), user, question, action, None if value is None else Given(value=value))


def over(question: Question) -> Question:
    """The question once it is closed and, where a person answered, handed over."""

    def look() -> Question | None:
        row = Question.objects.select_related("answer", "call").get(pk=question.pk)
        return row if row.state in ("expired", "withdrawn") or row.delivered_at or row.detail else None

    return eventually(look, 20, "the question never ended")


def text_of(call: Call) -> str:
    assert call.result is not None, (call.state, call.fault, call.detail, call.error_message)
    result = json.loads(payloads.read(call.result) or "{}")
    return "\n".join(block.get("text", "") for block in result.get("content", ()))


def replies(call: Call) -> list[dict[str, Any]]:
    """What the client told the scripted server of `asking_session`, as its tool `ask` handed it back."""
    found: list[dict[str, Any]] = json.loads(text_of(ended(call)))
    return found
