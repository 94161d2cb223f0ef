"""When a session falls to *needs authorization*, the pages of people who may sign in are notified once per fall."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from servers.enums import TransportKind
from servers.models import Server
from sessions import hints
from sessions.connections import commands, lifecycle
from sessions.enums import SessionCondition, SessionState
from sessions.live.sign_in_frames import fell_at, frames, own_frames
from sessions.models import ConnectionEvent, McpSession, Worker
from tests.sessions.live.site import Site
from tests.sessions.live.test_topics import PERMISSIONS, person

KEEPERS = [*PERMISSIONS, "change_server", "view_credential", "manage_credential"]


async def test_a_fall_reaches_the_pages_of_those_who_may_sign_in(site: Site) -> None:
    ada, slug = person(site, KEEPERS), f"s-{uuid.uuid4().hex[:8]}"
    server = site.do("server", slug)
    site.do("worker_holds", server)
    async with ada.tab() as tab:
        await tab.sub("sign_ins")
        site.do("falls", server)
        frame = await tab.hear(lambda message: message.get("kind") == "sign_in")
        [row] = frame["rows"]
        assert (row["server"], row["server_name"], row["word"]) == (server, slug, "needs_auth")
        assert row["url"] == f"/servers/{slug}/settings/#credentials"
        assert "token" not in str(frame)


@pytest.fixture
def session(db: None) -> McpSession:
    server = Server.objects.create(
        slug="gate", name="Gate", transport=TransportKind.STREAMABLE_HTTP, url="https://g.example/"
    )
    made = commands.shared_session(server)
    state = {"condition": SessionCondition.NEEDS_AUTH, "fault": "unauthorized", "state_since": timezone.now()}
    McpSession.objects.filter(pk=made.pk).update(**state)
    made.refresh_from_db()
    return made


def line(session: McpSession, number: int, at: datetime, *, waits: bool = True, last: datetime | None = None) -> None:
    state = SessionState.DISCONNECTED if waits else SessionState.READY
    condition = SessionCondition.NEEDS_AUTH if waits else SessionCondition.NONE
    ConnectionEvent.objects.create(
        session=session, number=number, at=at, last_at=last or at, state=state, condition=condition
    )


def test_tries_that_end_the_same_way_are_one_fall_and_a_session_that_was_open_falls_again(session: McpSession) -> None:
    start = timezone.now() - timedelta(minutes=9)
    moments = [start + timedelta(minutes=minute) for minute in range(6)]
    line(session, 1, moments[0])
    line(session, 2, moments[1])
    assert fell_at(session) == moments[0]
    line(session, 3, moments[2], waits=False)
    line(session, 4, moments[3])
    line(session, 5, moments[4])
    assert fell_at(session) == moments[3]


def test_of_a_line_that_stands_for_several_falls_the_last_counts(session: McpSession) -> None:
    start = timezone.now() - timedelta(minutes=9)
    line(session, 1, start, waits=False, last=start + timedelta(minutes=5))
    line(session, 2, start + timedelta(minutes=1), last=start + timedelta(minutes=6))
    assert fell_at(session) == start + timedelta(minutes=6)


def test_a_server_whose_challenge_names_a_sign_in_leads_there(session: McpSession) -> None:
    type(session.identity).objects.update(challenge={"metadata_url": "", "scopes": []})
    McpSession.objects.update(connected_at=timezone.now())
    [frame] = frames(None)
    assert '"word":"sign_in_again"' in frame.text
    assert '"url":"/servers/gate/sign-in/"' in frame.text


def test_what_fell_long_ago_or_is_disabled_is_not_told(session: McpSession) -> None:
    assert len(frames([session.server.uid])) == 1
    Server.objects.update(enabled=False)
    assert frames(None) == []
    Server.objects.update(enabled=True)
    McpSession.objects.update(state_since=timezone.now() - timedelta(minutes=3))
    assert frames(None) == []


def test_the_verb_of_a_host_tells_of_a_fall_once_it_is_committed(
    session: McpSession, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    told: list[uuid.UUID] = []
    monkeypatch.setattr(hints, "sign_in_needed", told.append)
    now = timezone.now()
    worker = Worker.objects.create(node="w@m", machine="m", pid=1, started_at=now, heartbeat_at=now)
    McpSession.objects.update(owner=worker, epoch=1)
    server = session.server
    lease = lifecycle.Lease(
        session.pk, session.uid, server.pk, server.uid, server.name, "shared", worker.pk, worker.uid, 1
    )
    failure = lifecycle.Failure("unauthorized", "It asks for a token.")
    with django_capture_on_commit_callbacks(execute=True):
        assert lifecycle.waiting_for_person(lease, SessionCondition.NEEDS_AUTH, failure)
        assert told == []
    assert told == [server.uid]
    with django_capture_on_commit_callbacks(execute=True):
        lifecycle.waiting_for_person(lease, SessionCondition.INCOMPATIBLE, failure)
    assert told == [server.uid]


def test_the_fall_of_an_own_session_is_reported_to_its_owner_alone(session: McpSession, django_user_model: Any) -> None:
    bea = django_user_model.objects.create_user("bea", password="x")
    own = session.server.identities.create(kind="personal", name="bea", user=bea)
    McpSession.objects.filter(pk=session.pk).update(identity=own)

    [frame] = own_frames([session.server.uid])

    assert frames(None) == []
    assert '"url":"/servers/gate/identity/"' in frame.text
    assert frame.audience.has(bea.pk, sees_personal=False)
    assert not frame.audience.has(bea.pk + 1, sees_personal=True)
