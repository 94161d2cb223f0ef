"""Subscriptions that only agents asked for end once no agent follows them."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from servers.accounts import people
from servers.audit import writer
from servers.audit.writer import AuditUnavailable, Writer
from servers.enums import AuditAction
from servers.models import AgentToken, AuditEvent
from sessions.agents import endpoints, follows
from sessions.agents.endpoints import Entry
from sessions.models import AgentFollow, AgentSession, McpSession, Subscription
from sessions.subscriptions import subscribing
from tests.sessions.agents.placed import principal_of
from tests.sessions.host.make import make_session
from tests.sessions.subscriptions.world import actor

pytestmark = pytest.mark.django_db(transaction=True)
LONG_AGO, NOW = timezone.now() - 2 * follows.GONE_AFTER, timezone.now() + timedelta(hours=1)


@pytest.fixture
def ada(valkey: Path) -> Iterator[Any]:
    yield get_user_model().objects.create_superuser("ada", password="x")
    writer.reset()


@pytest.fixture
def session(ada: Any) -> McpSession:
    return make_session("notes")


def followed(ada: Any, session: McpSession, uri: str = "note://one") -> Subscription:
    """Made for an agent that left long ago."""
    follower = AgentFollow(uri=uri, renewed_at=LONG_AGO)
    return subscribing.subscribe(actor(ada), ada, session.server, uri, follower=follower)


@pytest.fixture
def entry(ada: Any, session: McpSession) -> Entry:
    """Of a legacy session of an agent."""
    principal, now = principal_of(ada), timezone.now()
    times = {"created_at": now, "last_seen_at": now}
    mine = AgentSession.objects.create(
        key="k", token=principal.token, server=session.server, revision="2025-11-25", **times
    )
    return Entry(principal, endpoints.endpoint_of(principal, session.server.slug), mine)


def leave(entry: Entry) -> None:
    AgentSession.objects.update(ended_at=timezone.now())


def active() -> set[str]:
    return set(Subscription.objects.filter(active=True).values_list("uri", flat=True))


def refuse(monkeypatch: pytest.MonkeyPatch, problem: BaseException) -> None:
    """The first thing that is to be written."""
    real, refused = Writer.submit_and_wait, []

    def submit_and_wait(*given: Any, **more: Any) -> Any:
        if not refused:
            refused.append(problem)
            raise problem
        return real(*given, **more)

    monkeypatch.setattr(Writer, "submit_and_wait", submit_and_wait)


def test_what_no_agent_follows_any_more_ends_with_its_audit_event(ada: Any, session: McpSession) -> None:
    followed(ada, session)
    assert follows.end_unfollowed() == 1
    assert active() == set()
    assert not AgentFollow.objects.exists()
    (event,) = AuditEvent.objects.filter(action=AuditAction.SUBSCRIPTION_END)
    assert event.subject == "note://one"


def test_one_that_cannot_be_ended_now_stops_no_other_and_ends_the_next_time(
    ada: Any, session: McpSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed(ada, session, "note://one")
    followed(ada, session, "note://two")
    refuse(monkeypatch, AuditUnavailable("The database is away."))
    assert follows.end_unfollowed() == 1
    assert len(active()) == 1
    assert follows.end_unfollowed() == 1
    assert active() == set()


def test_one_ends_although_the_process_was_killed_before_it_was_written(
    ada: Any, session: McpSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed(ada, session)
    refuse(monkeypatch, SystemExit())
    with pytest.raises(SystemExit):
        follows.end_unfollowed()
    assert follows.end_unfollowed() == 1
    assert active() == set()


def test_what_an_agent_followed_whose_person_was_deleted_ends(ada: Any, session: McpSession, entry: Entry) -> None:
    follows.follow(actor(ada), entry, "note://one")
    boss = get_user_model().objects.create_superuser("boss")
    people.delete(actor(boss), boss, ada)
    assert follows.end_unfollowed() == 0, "agents reconnect"
    AgentFollow.objects.update(renewed_at=LONG_AGO)
    assert follows.end_unfollowed() == 1
    assert active() == set()


@pytest.mark.parametrize("field", ["revoked_at", "expires_at"])
def test_what_an_agent_followed_whose_token_no_longer_counts_ends(
    ada: Any, session: McpSession, entry: Entry, field: str
) -> None:
    follows.follow(actor(ada), entry, "note://one")
    AgentToken.objects.update(**{field: timezone.now()})
    assert follows.end_unfollowed() == 0
    AgentToken.objects.update(**{field: LONG_AGO})
    assert follows.end_unfollowed() == 1
    assert active() == set()


def test_it_stays_while_another_agent_follows_and_ends_with_that_one(ada: Any, session: McpSession) -> None:
    row = followed(ada, session)
    other = AgentFollow.objects.create(subscription=row, uri=row.uri, renewed_at=NOW)
    assert follows.end_unfollowed() == 0
    assert active() == {row.uri}
    AgentFollow.objects.filter(pk=other.pk).update(renewed_at=LONG_AGO)
    assert follows.end_unfollowed() == 1
    assert active() == set()


def test_what_a_person_subscribed_to_as_well_stays(ada: Any, session: McpSession) -> None:
    row = followed(ada, session)
    subscribing.subscribe(actor(ada), ada, session.server, row.uri)
    assert follows.end_unfollowed() == 0
    assert active() == {row.uri}
    assert not AgentFollow.objects.exists()


def test_what_a_person_subscribes_to_at_the_same_moment_stays(
    ada: Any, session: McpSession, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subscribing.subscribe

    def subscribe(*given: Any, **more: Any) -> Subscription:
        real(actor(ada), ada, session.server, "note://one")
        return real(*given, **more)

    monkeypatch.setattr(subscribing, "subscribe", subscribe)
    follows.follow(actor(ada), entry, "note://one")
    leave(entry)
    assert follows.end_unfollowed() == 0
    assert active() == {"note://one"}


def test_what_an_agent_follows_again_after_a_person_ended_it_ends_with_the_agent(
    ada: Any, session: McpSession, entry: Entry
) -> None:
    row = subscribing.subscribe(actor(ada), ada, session.server, "note://one")
    follows.follow(actor(ada), entry, row.uri)
    assert subscribing.unsubscribe(actor(ada), ada, row)
    follows.follow(actor(ada), entry, row.uri)
    assert active() == {row.uri}
    leave(entry)
    assert follows.end_unfollowed() == 1
    assert active() == set()


def test_an_agent_that_comes_and_goes_leaves_one_row_for_each_resource(ada: Any, session: McpSession) -> None:
    principal = principal_of(ada)
    listening = Entry(principal, endpoints.endpoint_of(principal, session.server.slug))
    uris = [f"note://{number}" for number in range(5)]
    for _ in range(4):
        stream = uuid4()
        for uri in uris:
            follows.follow(actor(ada), listening, uri, stream)
        assert sorted(AgentFollow.objects.filter(stream=stream).values_list("uri", flat=True)) == uris
        follows.forget_stream(stream)
    assert AgentFollow.objects.count() == len(uris)
    AgentFollow.objects.update(renewed_at=LONG_AGO)
    assert follows.end_unfollowed() == len(uris)
    assert active() == set()


def test_the_rows_of_a_stream_are_found_by_an_index() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("the plan is SQLite's")
    assert "agent_follows_by_stream" in AgentFollow.objects.filter(stream=uuid4()).explain()


def test_what_a_person_subscribes_to_while_it_is_about_to_end_stays(
    ada: Any, session: McpSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, real = followed(ada, session), subscribing.end_unfollowed

    def end_unfollowed(*given: Any) -> bool:
        subscribing.subscribe(actor(ada), ada, session.server, row.uri)
        return real(*given)

    monkeypatch.setattr(subscribing, "end_unfollowed", end_unfollowed)
    assert follows.end_unfollowed() == 0
    assert active() == {row.uri}
