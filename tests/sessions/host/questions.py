"""Helpers of the inbox tests that bypass the pages: wait for a question, answer it as a person, read how it ended."""

import json
from typing import Any

from django.contrib.auth import get_user_model

from servers.audit import payloads
from servers.audit.record import Actor
from sessions.inbox import answering
from sessions.inbox.answering import Action, SubmittedArguments
from sessions.models import Call, McpSession, Question
from tests.peers.peers import peer_command
from tests.sessions.host.harness import await_ready, ended, eventually, wake
from tests.sessions.host.make import make_call, make_session
from tests.sessions.mcp.client.answers import asking


def peer_session(name: str, *, era: str = "auto", **fields: Any) -> McpSession:
    """A ready session of a peer over stdio whose tools are known."""
    command, arguments = peer_command(name, "stdio")
    session = make_session(command=command, arguments=arguments, era=era, **fields)
    await_ready(session, 40)
    eventually(lambda: session.server.definitions.filter(kind="tool").exists())
    return session


def asking_session(slug: str = "asking", **fields: Any) -> McpSession:
    """A ready session of a scripted legacy server that asks whatever its caller wants."""
    spec = asking()
    session = make_session(slug, command=spec.command, arguments=list(spec.args), era="legacy", **fields)
    return await_ready(session)


def person(name: str = "ada", *, superuser: bool = True) -> Any:
    people = get_user_model()._default_manager
    return people.filter(username=name).first() or people.create_user(name, is_superuser=superuser)


def begin(session: McpSession, tool: str, **arguments: Any) -> Call:
    """Place a call and wake its worker."""
    call = make_call(session, tool, **arguments)
    wake(call)
    return call


def asked_by(call: Call, seconds: float = 20) -> Question:
    """The open question that blocks the call."""
    open_ones = Question.objects.filter(call=call, state="open").select_related("call", "server", "question")
    return eventually(open_ones.first, seconds, f"{call.target} asked nothing")


def open_question(session: McpSession) -> Question:
    found = Question.objects.filter(server=session.server, state="open").select_related("call", "server", "question")
    return eventually(found.first, 20, "the server asked nothing")


def answer(question: Question, action: Action, value: Any = None, *, by: str = "grace") -> bool:
    user = person(by)
    return answering.answer(
        Actor.of_user(user), user, question, action, None if value is None else SubmittedArguments(value=value)
    )


def over(question: Question) -> Question:
    """The question once it has expired, is withdrawn, or its answer is delivered."""

    def look() -> Question | None:
        row = Question.objects.select_related("answer", "call").get(pk=question.pk)
        return row if row.state in ("expired", "withdrawn") or row.delivered_at or row.detail else None

    return eventually(look, 20, "the question never ended")


def text_of(call: Call) -> str:
    assert call.result is not None, (call.state, call.fault, call.detail, call.error_message)
    result = json.loads(payloads.read(call.result) or "{}")
    return "\n".join(block.get("text", "") for block in result.get("content", ()))


def replies(call: Call) -> list[dict[str, Any]]:
    """The client's replies to the scripted server of `asking_session`, as its tool `ask` returned them."""
    found: list[dict[str, Any]] = json.loads(text_of(ended(call)))
    return found
