"""A disabled person's calls: what was not sent is cancelled, what was sent goes on."""

from collections.abc import Iterator

import pytest

from servers.accounts import people
from servers.audit import writer as writing
from servers.audit.record import SYSTEM
from sessions.enums import CallState
from sessions.housekeeping import changed_registrations
from sessions.models import Call
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Iterator[None]:
    yield
    writing.reset()


def test_waiting_calls_of_a_disabled_person_are_cancelled_and_no_one_elses() -> None:
    vera, other, session = person("vera"), person("olga"), make_session("orders")
    calls = {name: make_call(session) for name in ("waiting", "sent", "of another")}
    Call.objects.filter(pk__in=[calls["waiting"].pk, calls["sent"].pk]).update(user=vera)
    Call.objects.filter(pk=calls["of another"].pk).update(user=other)
    Call.objects.filter(pk=calls["sent"].pk).update(state=CallState.SENT)
    people.disable(SYSTEM, None, vera)
    writing.writer().submit(lambda: None, lambda _: []).result(10)  # batches are written in order
    states = {name: Call.objects.get(pk=call.pk).state for name, call in calls.items()}
    assert states == {
        "waiting": CallState.CANCELLED,
        "sent": CallState.SENT,
        "of another": CallState.REQUESTED,
    }


def test_waiting_calls_are_cancelled_though_what_else_follows_the_disabling_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a hook that fails")

    monkeypatch.setattr(changed_registrations, "user_left", fail)
    vera, session = person("vera"), make_session("orders")
    call = make_call(session)
    Call.objects.filter(pk=call.pk).update(user=vera)
    people.disable(SYSTEM, None, vera)
    writing.writer().submit(lambda: None, lambda _: []).result(10)
    assert Call.objects.get(pk=call.pk).state == CallState.CANCELLED
