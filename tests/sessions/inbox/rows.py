"""Creates questions as a worker would write them."""

import json
from datetime import timedelta
from typing import Any

from django.utils import timezone

from servers.audit import payloads
from servers.enums import IdentityKind, PayloadKind, TransportKind
from servers.models import Identity, Server
from sessions.enums import CallState, QuestionKind, QuestionState
from sessions.models import Call, McpSession, Question

METHODS = {
    QuestionKind.FORM: "elicitation/create",
    QuestionKind.URL: "elicitation/create",
    QuestionKind.SAMPLING: "sampling/createMessage",
}
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "title": "City", "minLength": 2},
        "visits": {"type": "integer", "title": "Visits", "default": 3, "minimum": 0},
        "size": {
            "type": "string",
            "title": "Size",
            "enum": ["s", "l"],
            "enumNames": ["Small", "Large"],
            "default": "l",
        },
    },
    "required": ["city"],
}
FORM = {"message": "Which city do you mean?", "requestedSchema": CITY}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "What is 2 + 2?"}}], "maxTokens": 50}


def a_server(name: str = "Demo") -> Server:
    slug = name.lower().replace(" ", "-")
    return Server.objects.get_or_create(name=name, slug=slug, transport=TransportKind.STDIO, command="/bin/demo")[0]


def a_session(server: Server) -> McpSession:
    identity, _ = Identity.objects.get_or_create(server=server, kind=IdentityKind.SHARED, defaults={"name": "Shared"})
    fields = {"state": "ready", "state_since": timezone.now()}
    return McpSession.objects.get_or_create(server=server, identity=identity, defaults=fields)[0]


def a_call(server: Server, user: Any = None, **fields: Any) -> Call:
    now = timezone.now()
    known = {"state": CallState.SENT, "target": "ask_person", "sent_at": now, "open_questions": 1} | fields
    return Call.objects.create(
        session=a_session(server), server=server, server_name=server.name, identity_name="Shared",
        user=user, user_name=user.get_username() if user else "",
        arguments=payloads.store(PayloadKind.ARGUMENTS, "{}"),
        deadline=now + timedelta(minutes=1), created_at=now, **known,
    )  # fmt: skip


def a_question(
    params: dict[str, Any], kind: str = QuestionKind.FORM, call: Call | None = None, **fields: Any
) -> Question:
    server = call.server if call is not None and call.server is not None else a_server()
    now = timezone.now()
    known = {"origin": "request", "summary": str(params.get("message", ""))[:300], "state": QuestionState.OPEN}
    return Question.objects.create(
        server=server, server_name=server.name, identity_name="Shared", call=call,
        kind=kind, method=METHODS[QuestionKind(kind)],
        question=payloads.store(PayloadKind.QUESTION, json.dumps(params)),
        created_at=now, **{"expires_at": now + timedelta(minutes=10), "session": a_session(server)} | known | fields,
    )  # fmt: skip


def answered(question: Question, answer: Any, by: str, state: str = QuestionState.ACCEPTED) -> Question:
    question.answer = payloads.store(PayloadKind.ANSWER, json.dumps(answer)) if answer is not None else None
    question.state, question.answered_by, question.ended_at = state, by, timezone.now()
    question.save()
    return question
