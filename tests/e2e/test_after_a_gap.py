"""Pages that were without connection for long show what happened meanwhile, also what no frame tells any more."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.e2e.walk import SECONDS, Walk
from tests.kit.peer import Peer
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
#: a call, a request and a resource that nothing but the test moves
SEED = """
import json
from django.utils import timezone
from servers.audit import payloads
from servers.enums import PayloadKind
from sessions.enums import CallState
from sessions.models import ResourceVersion, Subscription, Worker
from tests.sessions.inbox.rows import FORM, a_call, a_question, a_server
call, now = a_call(a_server("Away"), state=CallState.HELD, sent_at=None, open_questions=0), timezone.now()
times = {"created_at": now, "state_since": now}
board = Subscription.objects.create(
    server=call.server, identity=call.session.identity, uri="peer://board", active=False, state="ended", **times
)
text = json.dumps([{"uri": board.uri, "text": "milk"}])
ResourceVersion.objects.create(
    subscription=board, number=1, at=now, cause="updated", digest="1", size=4,
    contents=payloads.store(PayloadKind.RESOURCE, text),
)
print(a_question(FORM, call=call, worker_uid=Worker.objects.order_by("-pk").first().uid).uid)
"""
ENDED = """
from datetime import timedelta
from django.utils import timezone
from sessions.enums import CallState, QuestionState
from servers.models import Payload
from sessions.models import Call, Question
long_ago = timezone.now() - timedelta(minutes=20)
Call.objects.filter(server_name="Away").update(state=CallState.EXPIRED, finished_at=long_ago)
Question.objects.filter(server_name="Away").update(
    state=QuestionState.ACCEPTED, answered_by="robin", ended_at=long_ago, version=2
)
Payload.objects.filter(text__contains="milk").update(text='[{"uri": "peer://board", "text": "bread"}]')
"""


def opened(person: Walk, path: str) -> Peer:
    peer = Peer(person.page)
    person.page.clock.install()
    person.open(path)
    expect(person.page.locator("[data-live-pill]")).to_have_attribute("data-state", "live")
    return peer


def away(person: Walk, peer: Peer) -> None:
    """A laptop sleeps, and the connection comes back."""
    before = peer.connections
    person.page.clock.fast_forward(60 * SECONDS)
    peer.close(1011)
    person.until(lambda: peer.connections > before)
    expect(person.page.locator("[data-live-pill]")).to_have_attribute("data-state", "live")


def test_what_ended_while_a_page_was_away_is_shown_as_ended(stack: Stack, walker: Callable[..., Walk]) -> None:
    uid = stack.shell(SEED).split()[-1]
    history, inbox, resource, question = people = [walker(stack, signed_in=True) for _ in range(4)]
    paths = ("/servers/away/history/", "/inbox/", "/servers/away/resources/?uri=peer://board", f"/inbox/{uid}/")
    peers = [opened(person, path) for person, path in zip(people, paths, strict=True)]
    field = question.page.locator("[name='arg:/city']")
    field.fill("half typed")
    with question.page.expect_response(f"**/inbox/{uid}/"):
        away(question, peers[-1])
    expect(question.page.locator("#question-head [aria-busy]")).to_have_count(0)
    expect(field).to_have_value("half typed")
    calls, waiting = history.page.locator("#history-calls"), inbox.page.locator("#inbox-open tbody tr")
    expect(calls).to_contain_text("Waiting for approval")
    expect(waiting.filter(has_text="Away")).to_have_count(1)
    expect(resource.page.locator("#resource-content")).to_contain_text("milk")
    stack.shell(ENDED)
    for person, peer in zip(people, peers, strict=True):
        away(person, peer)
    expect(calls).to_contain_text("Expired")
    expect(waiting.filter(has_text="Away")).to_have_count(0)
    expect(inbox.page.locator("#inbox-ended")).to_contain_text("Away")
    expect(resource.page.locator("#resource-content")).to_contain_text("bread")
    expect(question.page.locator("[data-question-over]")).to_contain_text("Answered by robin")
