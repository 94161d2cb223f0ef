"""Pages that show a call of an agent name its token and program, and the approval that let it run."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from servers.enums import ActionSource
from sessions.enums import ApprovalState
from sessions.live import call_frames
from sessions.models import AgentCall, Approval, Call, McpSession
from tests.servers.conftest import person
from tests.sessions.explorer.rows import ended_call
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db
WHO = "ann, token Laptop (program 0.1.0)"


@pytest.fixture
def ann() -> Any:
    return person("ann", "view_server", "call_tool", "answer_question")


@pytest.fixture
def client(ann: Any) -> Client:
    made = Client()
    made.force_login(ann)
    return made


def agents_call(session: McpSession, ann: Any) -> Call:
    call = ended_call(session, user=ann)
    Call.objects.filter(pk=call.pk).update(way=ActionSource.AGENT)
    AgentCall.objects.create(call=call, token_name="Laptop", program="program 0.1.0", same=str(call.pk))
    return call


def approved(call: Call) -> Approval:
    now = timezone.now()
    times = {"created_at": now, "expires_at": now, "ended_at": now}
    return Approval.objects.create(call=call, same="0", why="w", state=ApprovalState.APPROVED, ended_by="bob", **times)


def words(page: Any) -> str:
    return " ".join(page.content.decode().split())


def plain(text: str) -> str:
    return " ".join(text.replace("<b>", "").replace("</b>", "").split())


def addresses(call: Call) -> list[str]:
    return [
        reverse("calls:detail", args=[call.uid]),
        f"{reverse('explorer:page')}?q=last:24h+in:calls&sel=calls.{call.pk}",
        reverse("servers:history", args=[McpSession.objects.get().server.slug]),
    ]


def test_every_page_of_an_agents_call_names_its_token_and_program(ann: Any, client: Client) -> None:
    call = agents_call(make_session(), ann)
    for address in addresses(call):
        assert WHO in plain(words(client.get(address))), address
    frame = call_frames.call_frames([(call.uid, False)])[call.uid, False].text
    assert "token Laptop (program 0.1.0)" in frame


def test_a_call_of_a_person_names_no_token(ann: Any, client: Client) -> None:
    call = ended_call(make_session(), user=ann)
    for address in addresses(call):
        assert ", token" not in words(client.get(address)), address


def test_the_pages_of_one_call_lead_to_the_approval_that_let_it_run(ann: Any, client: Client) -> None:
    call = agents_call(make_session(), ann)
    approval = approved(call)
    for address in addresses(call)[:2]:
        page = words(client.get(address))
        assert f'href="{reverse("inbox:approval", args=[approval.uid])}"' in page, address
        assert "Approved by bob" in page, address


def test_more_rows_of_agents_need_no_more_queries(ann: Any, client: Client) -> None:
    session = make_session()
    address = addresses(agents_call(session, ann))[2]

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            client.get(address)
        return len(captured)

    queries()
    before = queries()
    for _ in range(5):
        agents_call(session, ann)
    assert queries() == before


def test_the_frame_of_an_agents_call_is_read_in_one_query(ann: Any, django_assert_num_queries: Any) -> None:
    call = agents_call(make_session(), ann)
    with django_assert_num_queries(1):
        call_frames.call_frames([(call.uid, False)])
