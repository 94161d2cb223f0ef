"""The status pill, the panel and the list always show the same state of a session."""

from datetime import timedelta

import pytest
from django.template import Context, Template
from django.utils import timezone

from sessions.connections.lifecycle import Failure, backing_off, connecting, initializing, ready
from sessions.housekeeping import dead_workers, heartbeats
from sessions.models import McpSession, Worker
from sessions.overview import rows
from sessions.overview.shown import shown
from tests.sessions.host.make import make_greeting, make_hold, make_me, make_session, make_worker

pytestmark = pytest.mark.django_db


def open_session(slug: str, worker: Worker) -> McpSession:
    lease = make_hold(make_session(slug), worker)
    connecting(lease, 1, 0)
    initializing(lease)
    ready(lease, make_greeting())
    return reread(lease.session_id)


def reread(pk: int) -> McpSession:
    return McpSession.objects.select_related("owner", "server", "identity").get(pk=pk)


def panel(session: McpSession) -> str:
    template = Template('{% include "catalog/_no_definitions.html" with what="tools" noun="tool" %}')
    context = {"server": session.server, "mcp_session": session, "permissions": {}, "explanation": None}
    return template.render(Context(context))


def test_a_session_whose_worker_sends_no_sign_of_life_is_not_shown_as_ready() -> None:
    session = open_session("files", make_worker())
    assert shown(session.server, session).key == "ready"
    Worker.objects.update(heartbeat_at=timezone.now() - timedelta(seconds=60))
    now = shown(session.server, reread(session.pk))
    assert (now.key, now.look.word) == ("worker_silent", "Worker not responding")


def test_a_worker_whose_process_was_seen_to_end_is_dead_at_once(django_capture_on_commit_callbacks) -> None:
    me = make_me(node="worker1@here", pid=4711)
    session = open_session("files", make_worker(me))
    before = session.version
    with django_capture_on_commit_callbacks(execute=True):
        assert dead_workers.process_ended("worker1@here", "machine", 4711) == [me.uid]
    again = reread(session.pk)
    assert shown(again.server, again).look.word == "Worker stopped"
    assert again.version > before
    assert list(Worker.objects.living()) == []
    assert [worker.uid for worker in dead_workers.ended_workers()] == [me.uid]


def test_a_worker_of_another_machine_with_the_same_pid_lives_on() -> None:
    make_worker(make_me(node="worker1@here", pid=4711))
    assert dead_workers.process_ended("worker1@here", "another", 4711) == []
    assert Worker.objects.living().count() == 1


def test_a_worker_that_is_heard_of_again_was_not_dead() -> None:
    me = make_me(node="worker1@here", pid=4711)
    make_worker(me)
    dead_workers.process_ended("worker1@here", "machine", 4711)
    heartbeats.heartbeat(me, draining=False, sessions=0)
    assert Worker.objects.living().count() == 1


def test_the_empty_panel_says_what_the_pill_says() -> None:
    worker = make_worker()
    lease = make_hold(make_session("files"), worker)
    connecting(lease, 1, 0)
    assert "Connecting" in panel(reread(lease.session_id))
    backing_off(lease, Failure("connection_refused", "Nothing is listening."), 30)
    session = reread(lease.session_id)
    assert shown(session.server, session).look.word == "Retrying"
    assert "Retrying" in panel(session)
    assert "Connecting" not in panel(session)


def test_a_paused_session_that_is_still_open_is_pausing() -> None:
    session = open_session("files", make_worker())
    McpSession.objects.update(paused=True)
    assert shown(session.server, reread(session.pk)).look.word == "Pausing"


def test_a_server_whose_lists_were_not_read_yet_is_not_said_to_offer_nothing() -> None:
    session = open_session("files", make_worker())
    assert "Loading tools" in panel(session)
    assert "offers no tools" not in panel(session)
    McpSession.objects.update(catalog_counts={"tool": {"added": 0}})
    assert "offers no tools" in panel(reread(session.pk))


def test_a_frame_carries_the_words_of_the_panel() -> None:
    session = open_session("files", make_worker())
    McpSession.objects.update(catalog_counts={"tool": {"added": 0}})
    session = reread(session.pk)
    row = rows.server_row(session.server, session)
    assert row["panel"]["title"] == "No {what}"
    assert row["word"] == "Ready"
