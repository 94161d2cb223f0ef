"""A card shows the log lines of its call: also in the frame of a live page, which asks for them only if there are some."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from sessions.calls import statements
from sessions.enums import CallState
from sessions.live import call_frames
from sessions.models import Call, LogLine, McpSession
from tests.sessions.host.make import make_call, make_session


def line_of(call: Call, seq: int, text: str, **log: Any) -> None:
    fields = {"source": "server", "at": timezone.now(), "server": call.server}
    LogLine.objects.create(**fields, seq=seq, text=text, call_uid=call.uid, **log)


def frame_of(call: Call) -> str:
    return call_frames.call_frames([(call.uid, False)])[call.uid, False].text


@pytest.mark.django_db
@pytest.mark.parametrize("personal", [False, True])
def test_the_frame_of_a_call_has_the_lines_of_its_own_log(personal: bool, django_assert_num_queries: Any) -> None:
    session = make_session()
    log: dict[str, Any] = {"identity": session.identity} if personal else {}
    other: dict[str, Any] = {} if personal else {"identity": session.identity}
    call, silent = make_call(session), make_call(session)
    ended = {"state": CallState.SUCCEEDED, "sent_at": timezone.now(), "finished_at": timezone.now()}
    Call.objects.update(personal=personal, **ended)
    line_of(call, 1, "a line of the call", **log)
    line_of(call, 2, "a line of another log", **other)
    shown = frame_of(call)
    assert ("a line of the call" in shown, "a line of another log" in shown) == (True, False)
    assert f"?q=in:logs+call:{call.uid}" in shown, "those that are left out are there"
    with django_assert_num_queries(1):
        assert "a line of" not in frame_of(silent)
    line_of(silent, statements.LINES_LOOKED_AT + 1, "much later", **log)
    assert "a line of the call" not in frame_of(call), "too long ago"


@pytest.mark.django_db
def test_the_page_of_a_call_leads_to_all_of_its_lines_however_old_they_are(admin_client: Client) -> None:
    call = make_call(make_session())
    line_of(call, 1, "a line of the call")
    line_of(make_call(McpSession.objects.get()), statements.LINES_LOOKED_AT + 1, "much later")
    address = f"/explorer/?q=in:logs+call:{call.uid}"
    page = admin_client.get(f"/calls/{call.uid}/").content.decode()
    assert "a line of the call" not in page
    assert f'href="{address}"' in page
    assert "a line of the call" in admin_client.get(address).content.decode()
