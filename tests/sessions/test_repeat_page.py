"""*Run again* warns whenever the first run may have had an effect, in every final state."""

from collections.abc import Iterator

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit import writer as writing
from sessions.enums import CallState
from sessions.models import Call
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db(transaction=True)
WARNING = "The first call may have run"


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.mark.parametrize(
    ("state", "may_have_run", "why"),
    [
        (CallState.OUTCOME_UNKNOWN, True, "Its outcome is unknown."),
        (CallState.OUTCOME_UNKNOWN, False, "Its outcome is unknown."),  # the worker died
        (CallState.FAILED, True, "without a usable answer"),
        (CallState.CANCELLED, True, "It was cancelled after it was sent."),
        (CallState.FAILED, False, ""),
        (CallState.TOOL_ERROR, False, ""),
        (CallState.EXPIRED, False, ""),
    ],
)
def test_the_page_warns_where_the_tool_may_have_run(state: CallState, may_have_run: bool, why: str) -> None:
    call = make_call(make_session("tools"), "delete_all")
    Call.objects.filter(pk=call.pk).update(state=state, may_have_run=may_have_run, finished_at=timezone.now())
    client = Client()
    client.force_login(person("carla", "view_server", "call_tool"))
    page = client.get(f"/calls/{call.uid}/repeat/").content.decode()
    assert (WARNING in page) is bool(why)
    assert why in page
