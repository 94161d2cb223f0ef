"""Handwritten SQL gives the same results as the ORM on both databases: claims, state changes and the timeline."""

import pytest
from django.db import transaction
from pytest_django import DjangoAssertNumQueries

from sessions.connections import assignment, lifecycle, timeline
from sessions.connections.lifecycle import Failure
from sessions.enums import SessionState
from sessions.models import ConnectionEvent, McpSession
from tests.servers.conftest import on_postgres  # noqa: F401  a fixture
from tests.sessions.host.make import make_greeting, make_hold, make_me, make_session, make_worker

REFUSED = Failure("connection_refused", "Nothing is listening there.", "connect")


def a_life_of_a_session() -> None:
    lease = make_hold(make_session())
    greeting = make_greeting(server_info={"name": "d\u00e9mo", "n": [1, {"deep": None}]})
    with transaction.atomic():
        assert lifecycle.connecting(lease, 1, 0)
        assert lifecycle.ready(lease, greeting)
        assert lifecycle.measured(lease, 1.5)
        assert lifecycle.catalog_read(lease, 1, ["slow"], {"tool": ["limit", "cut"]}, catalog_counts={"tool": {}})
    found = McpSession.objects.get()
    assert (found.state, found.restarts, found.latency_ms, found.version) == (SessionState.READY, 0, 1.5, 6)
    assert (found.server_info, found.remembered) == (greeting.server_info, greeting.remembered)
    assert (found.catalog_warnings, found.decided_at) == (["slow"], greeting.decided_at)
    with transaction.atomic():
        assert lifecycle.backing_off(lease, REFUSED, 5)
        assert lifecycle.connecting(lease, 1, 7)
        assert not lifecycle.process(lease, {"pid": 1})
        assert lifecycle.ready(lease, greeting)
        assert lifecycle.process(lease, {"pid": 1})
        assert lifecycle.release(lease)
    found = McpSession.objects.get()
    assert (found.restarts, found.restart_done, found.owner, found.process) == (1, 7, None, {})
    assert not lifecycle.measured(lease, 2.5)
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
    lease = make_hold(make_session())
    lifecycle.connecting(lease, 1, 0)
    lifecycle.ready(lease, make_greeting())
    lifecycle.backing_off(lease, REFUSED, 5)
    lifecycle.connecting(lease, 2, 0)
    assert McpSession.objects.get().remembered
    lifecycle.disconnecting(lease)
    lifecycle.disconnected(lease)
    lifecycle.connecting(lease, 1, 1)
    assert McpSession.objects.get().remembered == {}


# --- claims ------------------------------------------------------------------------------------------------------------
@pytest.mark.django_db
def test_fifty_sessions_cost_no_more_statements_than_one(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    for number in range(assignment.CLAIM_LIMIT):
        make_session(f"server-{number}")
    worker = make_worker()
    with django_assert_max_num_queries(10):
        leases = assignment.claim_some(worker.pk)
    assert len({lease.session_id for lease in leases}) == assignment.CLAIM_LIMIT
    assert {lease.epoch for lease in leases} == {1}
    assert ConnectionEvent.objects.filter(title="Taken", number=1, epoch=1).count() == assignment.CLAIM_LIMIT


@pytest.mark.django_db
def test_a_session_that_another_worker_took_meanwhile_is_left_to_it() -> None:
    mine, other = make_worker(), make_worker(make_me(node="w2@there"))
    taken, free = make_session("taken"), make_session("free")
    assert assignment.claim_one(taken.uid, other.pk)
    leases = assignment._claimed([taken.pk, free.pk], mine)  # another claim came between read and update
    assert [lease.session_id for lease in leases] == [free.pk]
    assert McpSession.objects.get(pk=taken.pk).owner_id == other.pk


@pytest.mark.django_db
def test_a_new_owner_goes_on_with_the_numbers_of_a_timeline_and_cuts_its_ring() -> None:
    session = make_session()
    for number in range(timeline.KEPT + timeline.TRIM_EVERY):
        lease = make_hold(session)
        lifecycle.release(lease)
        assert lease.epoch == number + 1
    numbers = list(ConnectionEvent.objects.order_by("number").values_list("number", flat=True))
    assert numbers == list(range(numbers[-1] - len(numbers) + 1, numbers[-1] + 1))
    assert len(numbers) < timeline.KEPT + timeline.TRIM_EVERY
