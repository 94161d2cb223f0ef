"""What is written in SQL by hand does on both databases what the ORM would: claims, steps of a session, its timeline."""

import pytest
from django.db import transaction
from pytest_django import DjangoAssertNumQueries

from sessions.domain import claiming, lifecycle, timeline
from sessions.domain.lifecycle import Failure
from sessions.enums import SessionState
from sessions.models import ConnectionEvent, McpSession
from tests.servers.conftest import on_postgres  # noqa: F401  a fixture
from tests.sessions.host.make import make_greeting, make_hold, make_me, make_session, make_worker

REFUSED = Failure("connection_refused", "Nothing listens there.", "connect")


def a_life_of_a_session() -> None:
    hold = make_hold(make_session())
    greeting = make_greeting(server_info={"name": "d\u00e9mo", "n": [1, {"deep": None}]})
    with transaction.atomic():
        assert lifecycle.connecting(hold, 1, 0)
        assert lifecycle.ready(hold, greeting)
        assert lifecycle.measured(hold, 1.5)
        assert lifecycle.catalog_read(hold, 1, ["slow"], {"tool": ["limit", "cut"]}, catalog_counts={"tool": {}})
    found = McpSession.objects.get()
    assert (found.state, found.restarts, found.latency_ms, found.version) == (SessionState.READY, 0, 1.5, 6)
    assert (found.server_info, found.remembered) == (greeting.server_info, greeting.remembered)
    assert (found.catalog_warnings, found.decided_at) == (["slow"], greeting.decided_at)
    with transaction.atomic():
        assert lifecycle.backing_off(hold, REFUSED, 5)
        assert lifecycle.connecting(hold, 1, 7)
        assert not lifecycle.process(hold, {"pid": 1})
        assert lifecycle.ready(hold, greeting)
        assert lifecycle.process(hold, {"pid": 1})
        assert lifecycle.release(hold)
    found = McpSession.objects.get()
    assert (found.restarts, found.restart_done, found.owner, found.process) == (1, 7, None, {})
    assert not lifecycle.measured(hold, 2.5)
    states = ConnectionEvent.objects.order_by("number").values_list("state", flat=True)
    assert list(states) == ["disconnected", "ready", "disconnected", "ready", "disconnected"]


@pytest.mark.django_db
def test_each_step_of_a_session_is_written_if_it_is_still_ours() -> None:
    a_life_of_a_session()


@pytest.mark.usefixtures("on_postgres")
def test_each_step_of_a_session_is_written_if_it_is_still_ours_on_postgresql() -> None:
    a_life_of_a_session()


@pytest.mark.django_db
def test_a_new_order_to_restart_forgets_what_was_found_out_and_the_same_one_keeps_it() -> None:
    hold = make_hold(make_session())
    lifecycle.connecting(hold, 1, 0)
    lifecycle.ready(hold, make_greeting())
    lifecycle.backing_off(hold, REFUSED, 5)
    lifecycle.connecting(hold, 2, 0)
    assert McpSession.objects.get().remembered
    lifecycle.disconnecting(hold)
    lifecycle.disconnected(hold)
    lifecycle.connecting(hold, 1, 1)
    assert McpSession.objects.get().remembered == {}


# --- claims ------------------------------------------------------------------------------------------------------------
@pytest.mark.django_db
def test_fifty_sessions_cost_no_more_statements_than_one(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    for number in range(claiming.CLAIM_LIMIT):
        make_session(f"server-{number}")
    worker = make_worker()
    with django_assert_max_num_queries(9):
        holds = claiming.claim_some(worker.pk)
    assert len({hold.session_id for hold in holds}) == claiming.CLAIM_LIMIT
    assert {hold.epoch for hold in holds} == {1}
    assert ConnectionEvent.objects.filter(title="Taken", number=1, epoch=1).count() == claiming.CLAIM_LIMIT


@pytest.mark.django_db
def test_a_session_that_another_worker_took_meanwhile_is_left_to_it() -> None:
    mine, other = make_worker(), make_worker(make_me(node="w2@there"))
    taken, free = make_session("taken"), make_session("free")
    assert claiming.claim_one(taken.uid, other.pk)
    holds = claiming._claimed([taken.pk, free.pk], mine)  # as between the reading of a list and the taking
    assert [hold.session_id for hold in holds] == [free.pk]
    assert McpSession.objects.get(pk=taken.pk).owner_id == other.pk


@pytest.mark.django_db
def test_a_new_owner_goes_on_with_the_numbers_of_a_timeline_and_cuts_its_ring() -> None:
    session = make_session()
    for number in range(timeline.KEPT + timeline.TRIM_EVERY):
        hold = make_hold(session)
        lifecycle.release(hold)
        assert hold.epoch == number + 1
    numbers = list(ConnectionEvent.objects.order_by("number").values_list("number", flat=True))
    assert numbers == list(range(numbers[-1] - len(numbers) + 1, numbers[-1] + 1))
    assert len(numbers) < timeline.KEPT + timeline.TRIM_EVERY
