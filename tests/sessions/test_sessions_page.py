"""The page *Sessions* lists workers and their sessions, and says why a session has no worker. It requires permission
to view servers."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers.enums import IdentityKind
from servers.models import Identity
from sessions.connections import worker_board
from sessions.connections.lifecycle import Failure, Lease, backing_off, connecting, ready
from sessions.enums import CallState
from sessions.models import Call, McpSession, Worker
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_greeting, make_hold, make_me, make_session, make_worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def visitor() -> Client:
    client = Client()
    client.force_login(person("carl", "view_server"))
    return client


def text_of(client: Client) -> str:
    answer: Any = client.get("/sessions/")
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def board() -> worker_board.Board:
    """Seen by a user who may view servers but not the results of others."""
    known = get_user_model().objects.filter(username="watcher").first()
    return worker_board.board(known or person("watcher", "view_server"))


def held(slug: str, worker: Worker) -> McpSession:
    session = make_session(slug)
    lease = make_hold(session, worker)
    connecting(lease, 1, 0)
    ready(lease, make_greeting())
    return session


def test_a_worker_shows_its_sessions_with_calls_in_flight_and_memory(visitor: Client) -> None:
    worker = make_worker()
    session = held("files", worker)
    McpSession.objects.update(process={"rss": 48_000_000})
    for state in (CallState.SENT, CallState.SENT, CallState.SUCCEEDED):
        Call.objects.filter(pk=make_call(session).pk).update(state=state)
    card = board().workers[0]
    assert (card.alive, card.held, card.in_flight, card.memory) == (True, 1, 2, 48_000_000)
    words = text_of(visitor)
    assert all(part in words for part in ("w1@here", "Alive", "Files", "Ready", "48.0 MB"))


def test_those_in_trouble_come_first_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_board, "SHOWN", 2)
    worker = make_worker()
    for slug in ("aa", "bb", "cc"):
        held(slug, worker)
    lease = make_hold(make_session("zz"), worker)
    connecting(lease, 1, 0)
    backing_off(lease, Failure("timeout", "No answer."), 5)
    card = board().workers[0]
    assert [line.session.server.slug for line in card.lines] == ["zz", "aa"]
    assert card.more == 2


def test_a_session_that_no_one_holds_says_why(visitor: Client) -> None:
    assert "Workers alive 0 none running" in text_of(visitor)
    make_session("gpu", worker_label="gpu")
    plain = make_session("plain")
    paused = make_session("paused")
    McpSession.objects.filter(pk=paused.pk).update(paused=True, paused_by="ada")
    why = {line.session.server.slug: line.why for line in board().unowned}
    assert why == {
        "gpu": "No worker with label gpu is running.",
        "plain": "No worker is running.",
        "paused": "Paused by ada. It opens when resumed.",
    }
    make_worker()
    again = {line.session.pk: line.why for line in board().unowned}
    assert again[plain.pk] == "Not claimed by a worker yet."
    assert "No worker with label gpu is running" in text_of(visitor)


def test_a_worker_without_a_sign_of_life_and_one_that_drains_say_so(visitor: Client) -> None:
    make_worker(silent_for=3600)
    draining = make_worker(make_me(node="w2@there"))
    Worker.objects.filter(pk=draining.pk).update(draining=True)
    words = text_of(visitor)
    assert "Not responding" in words
    assert "Draining" in words


def test_closed_sessions_and_disabled_servers_are_not_missed() -> None:
    make_session("closed", desired="closed")
    make_session("disabled", enabled=False)
    assert board().unowned == []


def test_whoever_may_not_see_servers_is_refused() -> None:
    client = Client()
    client.force_login(person("nobody"))
    assert client.get("/sessions/").status_code == 403


def test_a_servers_hostile_name_is_only_text(visitor: Client) -> None:
    session = held("evil", make_worker())
    session.server.name = "<script>alert(1)</script>"
    session.server.save()
    assert b"<script>alert" not in visitor.get("/sessions/").content


def change_nothing(worker: Worker, session: McpSession, lease: Lease) -> None:
    McpSession.objects.filter(pk=session.pk).update(state=session.state)


def beat(worker: Worker, session: McpSession, lease: Lease) -> None:
    Worker.objects.update(heartbeat_at=timezone.now())


def fall_silent(worker: Worker, session: McpSession, lease: Lease) -> None:
    Worker.objects.update(heartbeat_at=timezone.now() - timedelta(hours=1))


def drain(worker: Worker, session: McpSession, lease: Lease) -> None:
    Worker.objects.update(draining=True)


def send_a_call(worker: Worker, session: McpSession, lease: Lease) -> None:
    Call.objects.filter(pk=make_call(session).pk).update(state=CallState.SENT)


def lose_the_connection(worker: Worker, session: McpSession, lease: Lease) -> None:
    backing_off(lease, Failure("timeout", "No answer."), 5)


def register(worker: Worker, session: McpSession, lease: Lease) -> None:
    make_session("another")


CHANGES = [beat, fall_silent, drain, send_a_call, lose_the_connection, register]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_mark_differs_when_the_board_does(change: Callable[[Worker, McpSession, Lease], None]) -> None:
    worker = make_worker()
    session = make_session("files")
    lease = make_hold(session, worker)
    connecting(lease, 1, 0)
    ready(lease, make_greeting())
    before = worker_board.mark()
    change_nothing(worker, session, lease)
    assert worker_board.mark() == before
    change(worker, session, lease)
    assert worker_board.mark() != before


def test_a_personal_session_is_listed_for_those_who_may_read_all_results_only(visitor: Client) -> None:
    worker = make_worker()
    session = held("files", worker)
    Identity.objects.filter(pk=session.identity_id).update(kind=IdentityKind.PERSONAL, name="of bea")
    assert "of bea" not in text_of(visitor)
    everything = Client()
    everything.force_login(person("head", "view_server", "view_payload"))
    assert "of bea" in text_of(everything)
