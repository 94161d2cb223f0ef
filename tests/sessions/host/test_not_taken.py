"""An answer that a legacy server did not accept is not shown as delivered."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from servers.audit import writer
from servers.audit.record import Actor
from sessions.calls import server_tasks
from sessions.calls.claims import PendingCall
from sessions.connections.lifecycle import Lease
from sessions.enums import CallState
from sessions.host.answer_redaction import Redactor
from sessions.host.db import Database
from sessions.host.inbox.waiting import Inbox
from sessions.inbox import answering, more_time
from sessions.inbox.answering import SubmittedArguments
from sessions.inbox.card import end_of
from sessions.inbox.questions import NOT_SENT, NOT_TAKEN
from sessions.mcp.core.input_requests import InputRequest
from sessions.models import Call, McpSession, Question, ServerTask
from tests.servers.conftest import person
from tests.sessions.host.harness import eventually
from tests.sessions.host.make import make_call, make_hold, make_session
from tests.sessions.inbox.rows import FORM

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]
ASKED = InputRequest("elicitation/create", FORM, "request", "e-1")


@pytest.fixture
def lease(transactional_db: None) -> Lease:
    return make_hold(make_session())


@pytest.fixture
def db() -> Iterator[Database]:
    made = Database()
    yield made
    made.stop()
    writer.reset()


def inbox_of(db: Database, lease: Lease) -> Inbox:
    launch: Any = SimpleNamespace(timeouts=SimpleNamespace(total=600.0))
    log: Any = SimpleNamespace(host=lambda *words: None)
    return Inbox(db, lease, launch, log, Redactor(()))


async def until(look: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(eventually, look)


def answer() -> None:
    user = person("grace", "view_server", "answer_question")
    assert answering.answer(
        Actor.of_user(user), user, Question.objects.get(), "accept", SubmittedArguments(value={"city": "Oslo"})
    )


def orphan(session_id: int) -> PendingCall:
    """Of a task whose worker was lost long ago."""
    call = make_call(McpSession.objects.get(pk=session_id))
    now = timezone.now()
    Call.objects.update(state=CallState.OUTCOME_UNKNOWN, sent_at=now - timedelta(days=1), worker_uid=uuid.uuid4())
    times = {"begun_at": now - timedelta(days=1), "changed_at": now, "seen_at": now}
    ServerTask.objects.create(call=call, session_id=session_id, task_id="t", status="working", **times)
    [found] = server_tasks.orphans(session_id)
    return found.call


@pytest.mark.parametrize("origin", ["request", "task"])
async def test_what_a_task_asks_after_its_worker_was_lost_waits_for_people(
    db: Database, lease: Lease, origin: str
) -> None:
    inbox = inbox_of(db, lease)
    call = await asyncio.to_thread(orphan, lease.session_id)
    waits = asyncio.create_task(inbox.wait_for_answer(replace(ASKED, origin=origin, tag=call)))
    row = await until(lambda: waits.done() or Question.objects.select_related("call", "server").first())
    assert row is not True
    assert row.call_id == call.pk
    assert timedelta(minutes=5) < row.expires_at - row.created_at
    assert more_time.longer(row)
    await asyncio.to_thread(answer)
    await inbox.look()
    assert await waits == {"action": "accept", "content": {"city": "Oslo"}}
    await inbox.close()


async def test_no_one_is_asked_for_a_call_that_is_over(db: Database, lease: Lease) -> None:
    inbox = inbox_of(db, lease)
    call = await asyncio.to_thread(orphan, lease.session_id)
    await asyncio.to_thread(ServerTask.objects.update, ended_at=timezone.now())
    assert await inbox.wait_for_answer(replace(ASKED, tag=call)) == {"action": "cancel"}
    await inbox.close()


@pytest.mark.parametrize("sent", [True, False])
async def test_an_answer_of_a_round_is_delivered_when_the_call_is_sent_again(
    db: Database, lease: Lease, sent: bool
) -> None:
    inbox = inbox_of(db, lease)
    call = await asyncio.to_thread(orphan, lease.session_id)
    waits = asyncio.create_task(inbox.wait_for_answer(replace(ASKED, origin="round", tag=call)))
    await until(Question.objects.exists)
    await asyncio.to_thread(answer)
    await inbox.look()
    assert (await waits)["action"] == "accept"
    assert await until(lambda: end_of(Question.objects.get()).text == "")
    assert (await asyncio.to_thread(Question.objects.get)).delivered_at is None
    if sent:
        inbox.call_sent(call.uid)
        inbox.call_over(call.uid)
        row = await until(lambda: Question.objects.exclude(delivered_at=None).first())
    else:
        inbox.call_over(call.uid)
        inbox.call_sent(call.uid)
        row = await until(lambda: Question.objects.exclude(detail="").first())
    await inbox.close()
    assert (row.state, bool(row.delivered_at), row.detail) == ("accepted", sent, "" if sent else NOT_SENT)


async def test_an_answer_that_the_server_did_not_take_is_no_delivered_one(db: Database, lease: Lease) -> None:
    inbox = inbox_of(db, lease)
    waits = asyncio.create_task(inbox.wait_for_answer(ASKED))
    await until(Question.objects.exists)
    await asyncio.to_thread(answer)
    await inbox.look()
    assert (await waits)["action"] == "accept"
    await until(lambda: Question.objects.get().delivered_at)
    inbox.not_delivered("another")
    inbox.not_delivered("e-1")
    row = await until(lambda: Question.objects.filter(detail=NOT_TAKEN).first())
    await inbox.close()
    assert (row.state, row.delivered_at) == ("accepted", None)
    assert (end_of(row).title, end_of(row).text) == ("Answered by grace", NOT_TAKEN)
