"""What a person may not see is not counted for them either: the numbers of every page, for people with different
permissions.

The expected numbers come from the rows of the scene below, not from the pages' own queries.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.enums import IdentityKind, PayloadKind, SignsInAs
from servers.models import Credential, Identity, Server
from sessions.connections import commands, worker_board
from sessions.enums import CallState, QuestionKind
from sessions.inbox import card
from sessions.models import Call, McpSession, Question
from sessions.overview import numbers, rows
from sessions.overview.activity import activity
from sessions.subscriptions import board as subscriptions
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session, make_worker
from tests.sessions.subscriptions.rows import make_subscription

pytestmark = pytest.mark.django_db(transaction=True)
EVERYTHING = ("view_server", "view_payload", "answer_question", "view_auditevent", "view_credential", "change_server")


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Iterator[None]:
    yield
    writing.reset()


@dataclass
class Scene:
    server: Server
    people: dict[str, Any]


@pytest.fixture
def scene() -> Scene:
    """One server with a shared session and personal ones of olga and pete; each has one running call, one question,
    one subscription, all on one worker."""
    worker, shared = make_worker(), make_session("orders")
    server = shared.server
    Server.objects.filter(pk=server.pk).update(signs_in_as=SignsInAs.EITHER)
    server.refresh_from_db()
    people = {
        "olga": person("olga", "view_server", "call_tool", "change_server"),
        "pete": person("pete", "view_server", "call_tool"),
        "seer": person("seer", *EVERYTHING),
        "stan": person("stan", *(permission for permission in EVERYTHING if permission != "view_server")),
        "root": get_user_model().objects.create_superuser("root"),
    }
    _fill(shared, worker, people["root"], personal=False)
    for name in ("olga", "pete"):
        user = people[name]
        identity = Identity.objects.create(server=server, kind=IdentityKind.PERSONAL, name=name, user=user)
        Credential.objects.create(name=f"of {name}", kind="bearer", owner=user, sealed_at=timezone.now())
        _fill(commands.session_of(identity, server), worker, user, personal=True)
    return Scene(server, people)


def _fill(session: McpSession, worker: Any, user: Any, *, personal: bool) -> None:
    McpSession.objects.filter(pk=session.pk).update(owner=worker, process={"rss": 1_000_000})
    call = make_call(session)
    Call.objects.filter(pk=call.pk).update(
        state=CallState.SENT, user=user, user_name=user.get_username(), personal=personal, identity=session.identity
    )
    make_subscription(session, uri=f"demo://{session.pk}", created_by=user)
    Question.objects.create(
        session=session,
        server=session.server,
        server_name=session.server.name,
        personal=personal,
        kind=QuestionKind.FORM,
        method="elicitation/create",
        origin="request",
        summary="Which?",
        question=payloads.store(PayloadKind.QUESTION, "{}"),
        created_at=timezone.now(),
        expires_at=timezone.now() + timedelta(minutes=10),
    )


#: how many sessions each sees, of the three: with as many calls, questions and subscriptions
SEEN = {"olga": 2, "pete": 2, "seer": 3, "stan": 0, "root": 3}


@pytest.mark.parametrize(("name", "seen"), SEEN.items())
def test_every_number_counts_only_what_its_reader_may_see(scene: Scene, name: str, seen: int) -> None:
    user = scene.people[name]
    servers = Server.objects.all() if seen else Server.objects.none()
    overview = numbers.numbers(user, servers)
    drawn = activity(user, servers, timedelta(hours=24), 3_600)
    assert (drawn.total.calls, drawn.total.states.get(CallState.SENT, 0), overview["held"]) == (seen, seen, seen)
    assert [line.numbers.calls for line in drawn.lines] == ([seen] if seen else [])
    assert overview["switched_on"] == (1 if seen else 0)
    assert overview["workers"] == (1 if seen else 0)
    assert card.open_count(user) == seen
    assert len(card.open_questions(user)) == seen
    assert subscriptions.numbers(user, servers)["active"] == seen
    if seen:
        board = worker_board.board(user)
        assert (board.held, board.in_flight, board.memory) == (seen, seen, seen * 1_000_000)
        assert [len(worker.lines) for worker in board.workers] == [seen]
        assert [worker.more for worker in board.workers] == [0]
        impact = rows.dependents(user, scene.server)
        assert (impact.open_calls, impact.calls, impact.subscriptions) == (seen, seen, seen)


def text_of(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


@pytest.mark.parametrize(("name", "seen"), SEEN.items())
def test_the_pages_show_these_numbers_and_no_names_beyond(scene: Scene, name: str, seen: int) -> None:
    client = Client()
    client.force_login(scene.people[name])
    overview = text_of(client, "/")
    assert (f"Calls, last 24 hours {seen} " if seen else "You can't see servers") in overview
    found = json.loads(client.get("/palette/?q=orders").content)["results"]
    assert len(found) == (1 if seen else 0)
    if not seen:
        for path in (
            "/",
            "/servers/",
            "/inbox/",
            "/subscriptions/",
            "/credentials/",
            "/explorer/",
            "/account/",
        ):
            assert "orders" not in text_of(client, path).lower(), path
        return
    other = {"olga": "pete", "pete": "olga"}.get(name)
    for path in ("/sessions/", "/inbox/", "/subscriptions/", "/servers/orders/history/"):
        words = text_of(client, path)
        assert other is None or other not in words.replace(name, ""), path


def test_who_reads_the_audit_log_without_seeing_servers_gets_no_list_of_them(scene: Scene) -> None:
    Server.objects.create(slug="hidden-one", name="Hidden one", transport="stdio")
    for name, offered in (("stan", False), ("seer", True)):
        client = Client()
        client.force_login(scene.people[name])
        assert ("Hidden one" in client.get("/explorer/complete/?q=server:hidden&at=13").content.decode()) is offered


def test_a_manager_of_users_without_permission_to_see_servers_learns_none_of_them(scene: Scene) -> None:
    Server.objects.update(owner=scene.people["olga"])
    for name, permissions in (("only", ("manage_users",)), ("both", ("manage_users", *EVERYTHING, "call_tool"))):
        client = Client()
        client.force_login(person(name, *permissions))
        olga = scene.people["olga"].pk
        for path in (f"/users/{olga}/", f"/users/{olga}/disable/", f"/users/{olga}/hand-over/"):
            words = text_of(client, path)
            named = "orders" in words.lower() or "1 server" in words or "personal identity" in words
            assert named is (name == "both") or path.endswith("disable/"), path
        assert client.get(f"/users/{olga}/").status_code == 200
