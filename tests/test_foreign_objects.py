"""Roles x routes x objects of another person: no route of the URLconf shows or changes what belongs to someone else.

The routes come from the URLconf. The objects share two uids, so each route with a uid meets one of its kind.
"""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.audit.record import Actor
from servers.credentials import vault
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind, DraftState, PayloadKind, SignsInAs, ValueKind
from servers.models import (
    Credential,
    CredentialUse,
    Identity,
    ReferenceGrant,
    Server,
    ServerAuthorization,
    ServerDraft,
    ServerValue,
)
from servers.registration.importing import stored_preview
from servers.secret import Secret
from sessions.connections import commands
from sessions.enums import CallState, QuestionKind
from sessions.models import Call, McpSession, Question, SavedCall, Subscription
from tests.servers.cast import create_draft, over_http
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session
from tests.sessions.subscriptions.rows import add_version, make_subscription
from tests.test_routes import SAMPLES, routes

pytestmark = pytest.mark.django_db(transaction=True)
#: target and URI: without permission to read contents a page that shows too much shows only these
CANARIES = (
    *("target-of-bea", "argument-of-bea", "result-of-bea", "question-of-bea", "draft-of-bea", "import-of-bea"),
    *("uri-of-bea", "version-of-bea"),
)
ROLES = {
    "view": (),
    "call": ("call_tool", "answer_question", "manage_subscription"),
    "manage": ("add_server", "change_server", "call_tool", "answer_question", "manage_subscription", "manage_stdio"),
    "credentials": ("change_server", "view_credential", "manage_credential"),
}
#: what a person with the permission may do to credentials of others: see that they exist, and delete them
ALLOWED = {("credentials", "credentials:delete")}
WATCHED = (
    Credential,
    CredentialUse,
    Identity,
    ReferenceGrant,
    ServerValue,
    ServerDraft,
    ServerAuthorization,
    Call,
    Question,
    SavedCall,
)
#: what a view needs to come as far as the row; the last test shows that it is enough
SENT = {
    "credentials:replace": {"variable": "API_TOKEN", "value": "token-of-eve"},
    "calls:save": {"_name": "of eve"},
    "inbox:answer": {"action": "decline"},
    "subscriptions:settings": {
        "_section": "reading",
        **{"min_interval_seconds": "77", "keep_count": "7", "keep_days": "7", "keep_mib": "7"},
    },
}


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Iterator[None]:
    yield
    writing.reset()


class Bea:
    """A person with one of everything that is personal, at a server that others use as well."""

    def __init__(self) -> None:
        self.user = person("bea", "view_server", "add_server", "manage_stdio", *ROLES["call"])
        actor = Actor.of_user(self.user)
        self.server: Server = make_session("orders").server
        Server.objects.update(signs_in_as=SignsInAs.EITHER)
        self.server.refresh_from_db()
        self.server.values.create(kind=ValueKind.ENVIRONMENT, name="API_TOKEN", secret=True)
        parts = Parts(CredentialKind.ENVIRONMENT, {"variable": "API_TOKEN"}, {"value": Secret("token-of-bea")})
        self.credential = vault.create_own(actor, self.user, self.server, parts)
        identity = Identity.objects.get(user=self.user)
        self.session: McpSession = commands.session_of(identity, self.server)
        self.call = self._call(identity)
        self.subscription: Subscription = make_subscription(self.session, "demo://uri-of-bea")
        add_version(self.subscription, "version-of-bea")
        self.draft = create_draft(actor, self.user, over_http(url="https://mcp.example.com/draft-of-bea"))
        ServerDraft.objects.filter(pk=self.draft.pk).update(state=DraftState.FAILED, stderr_tail="draft-of-bea")
        self.preview = stored_preview.hold(self.user, json.dumps({"mcpServers": {"import-of-bea": {"command": "x"}}}))
        self.question = self._question()

    def _call(self, identity: Identity) -> Call:
        call = make_call(self.session, "echo", text="argument-of-bea")
        result = payloads.store(
            PayloadKind.RESULT, json.dumps({"content": [{"type": "text", "text": "result-of-bea"}]})
        )
        done = {
            "target": "target-of-bea",
            "state": CallState.SUCCEEDED,
            "finished_at": timezone.now(),
            "result": result,
        }
        Call.objects.filter(pk=call.pk).update(user=self.user, personal=True, identity=identity, **done)
        return Call.objects.get(pk=call.pk)

    def _question(self) -> Question:
        asked = {"mode": "form", "message": "question-of-bea", "requestedSchema": {"type": "object", "properties": {}}}
        return Question.objects.create(
            uid=uuid4(),
            session=self.session,
            server=self.server,
            server_name=self.server.name,
            kind=QuestionKind.FORM,
            method="elicitation/create",
            origin="request",
            personal=True,
            summary="question-of-bea",
            question=payloads.store(PayloadKind.QUESTION, json.dumps(asked)),
            created_at=timezone.now(),
            expires_at=timezone.now() + timedelta(minutes=10),
        )

    @property
    def owned(self) -> tuple[Any, ...]:
        return (self.credential, self.call, self.subscription, self.draft, self.preview, self.question, self.session)

    def share_uids(self) -> tuple[UUID, UUID]:
        """All objects get the uid of the preview, except the draft, which is a row of the same table."""
        for row in self.owned:
            if row != self.draft:
                row.uid = self.preview.uid
                row.save(update_fields=["uid"])
        return self.draft.uid, self.preview.uid


def rows(bea: Bea) -> dict[str, Any]:
    """Everything of hers that a request could change."""
    of_session = McpSession.objects.filter(pk=bea.session.pk)
    found = {model.__name__: list(model.objects.order_by("pk").values()) for model in WATCHED}
    return found | {"session": list(of_session.values()), "subscription": list(Subscription.objects.values())}


#: who may do most, and who may see credentials
SHORT = ("manage",)


@pytest.mark.parametrize(
    "role", [role if role in SHORT else pytest.param(role, marks=pytest.mark.long) for role in ROLES]
)
def test_what_belongs_to_another_person_is_neither_shown_nor_changed(role: str) -> None:
    bea = Bea()
    uids = bea.share_uids()
    client = Client()
    client.force_login(person("eve", "view_server", *ROLES[role]))
    found = [route for route in routes() if "<uuid:uid>" in route.written or "identity" in route.written]
    assert len(found) > 30
    before, others = rows(bea), set(ServerDraft.objects.values_list("pk", flat=True))
    for route in found:
        for uid in uids if "<uuid:uid>" in route.written else [uuid4()]:
            path = _filled(route.written, uid)
            for method in ("get", "post"):
                if (role, route.name) in ALLOWED:
                    continue
                answer = getattr(client, method)(path, SENT.get(route.name, {}) if method == "post" else {})
                text = b"".join(answer).decode() if answer.streaming else answer.content.decode()
                assert not [word for word in CANARIES if word in text], (route, uid)
                assert answer.status_code != 500, route
    after = rows(bea)
    assert {name for name in before if before[name] != after[name]} == set()
    assert others == set(ServerDraft.objects.values_list("pk", flat=True))


def _filled(written: str, uid: UUID) -> str:
    for place, sample in {**SAMPLES, "<uuid:uid>": str(uid)}.items():
        written = written.replace(place, sample)
    return written


@pytest.mark.parametrize("name", SENT)
def test_what_the_others_send_is_enough_for_herself(name: str) -> None:
    """The test above would pass on forms that are refused to everyone."""
    bea = Bea()
    if name.startswith("credentials:"):  # the form is of those who manage credentials that belong to nobody
        bea.user.user_permissions.add(*Permission.objects.filter(codename__in=ROLES["credentials"]))
        Credential.objects.update(owner=None, created_by=bea.user)
    client = Client()
    client.force_login(bea.user)
    (route,) = (route for route in routes() if route.name == name)
    before = rows(bea)
    for row in bea.owned:
        client.post(_filled(route.written, row.uid), SENT[name])
    assert rows(bea) != before


def test_she_herself_sees_what_the_others_do_not() -> None:
    """The test above would pass on pages that show nothing at all."""
    bea = Bea()
    bea.user.user_permissions.add(*Permission.objects.filter(codename="view_payload"))  # of versions
    bea.share_uids()
    client = Client()
    client.force_login(bea.user)
    shown = "".join(
        client.get(path).content.decode()
        for path in (
            f"/calls/{bea.call.uid}/",
            f"/calls/{bea.call.uid}/result.json",
            f"/subscriptions/{bea.subscription.uid}/",
            f"/subscriptions/{bea.subscription.uid}/versions/1/",
            f"/servers/test/{bea.draft.uid}/",
            f"/servers/import/{bea.preview.uid}/",
            f"/inbox/{bea.question.uid}/",
        )
    )
    assert [word for word in CANARIES if word not in shown] == []
