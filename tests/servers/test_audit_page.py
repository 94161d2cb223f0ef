"""The page of an audit event works through the whole stack of middleware and templates."""

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client

from servers.audit import payloads
from servers.audit.record import OPERATOR, SYSTEM, Actor, Event, ServerRef, record
from servers.enums import AuditAction, AuditOutcome, PayloadKind, StatementKind
from servers.models import AuditEvent, Checkpoint, Payload
from servers.registration import registering
from tests.servers.cast import header, over_http
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def ada(client: Client, admin: Any) -> Client:
    client.force_login(admin)
    return client


def signed_in(*permissions: str) -> Client:
    client = Client()
    client.force_login(person("rita", *permissions))
    return client


@pytest.fixture
def call() -> AuditEvent:
    """Records a call of three events with arguments and a result. Returns the last event."""
    arguments = payloads.store(PayloadKind.ARGUMENTS, '{"order":"ord_41F9"}')
    result = payloads.store(PayloadKind.RESULT, '{"content":[{"type":"text","text":"refunded-4711"}]}')
    uid, server = uuid4(), ServerRef(uuid4(), "orders")
    for action, digests in (
        (AuditAction.CALL_REQUEST, {"arguments": arguments.digest}),
        (AuditAction.CALL_SEND, {"arguments": arguments.digest}),
        (AuditAction.CALL_FINISH, {"arguments": arguments.digest, "result": result.digest}),
    ):
        actor = Actor(1, "ada", "192.0.2.7", "request-0001")
        record(Event(action, AuditOutcome.OK, actor, server, "shared", f"refund {HOSTILE}", uid, digests=digests))
    return AuditEvent.objects.order_by("-seq")[0]


def text(response: Any, status: int = 200) -> str:
    assert response.status_code == status
    return " ".join(response.content.decode().split())


def test_an_event_says_how_its_act_came_in(ada: Client, admin: Any) -> None:
    ways = {"Command line": OPERATOR, "Background task": SYSTEM, "Page": Actor.of_user(admin)}
    for words, actor in ways.items():
        seq = record(Event(AuditAction.USER_ENABLE, AuditOutcome.OK, actor, subject="vera"))
        assert f"<dt>Source</dt><dd>{words}</dd>" in text(ada.get(f"/audit/{seq}/"))


@pytest.mark.parametrize(
    ("before", "query"),
    [
        ("", "in:events"),
        ("?kind=rights", "in:events kind:permissions"),
        ("?kind=sign-in&user=ada", 'in:events kind:sign-in user:"ada"'),
        ("?kind=call:tool:finish&outcome=tool_error&server=orders", 'in:calls outcome:error server:"orders"'),
        ("?kind=calls&outcome=pending", "in:calls outcome:running"),
        ("?outcome=pending", "in:events outcome:pending"),
        ('?text=two "words"&outcome=denied', 'in:events outcome:denied "two \\"words\\""'),
        ("?since=2026-01-01T00:00&kind=nonsense", "in:events since:2026-01-01T00:00:00+00:00"),
        ("?since=2026-02-30T10:00&until=soon&outcome=maybe", "in:events"),
    ],
)
def test_addresses_of_the_former_list_lead_to_the_same_rows_of_the_explorer(
    ada: Client, before: str, query: str
) -> None:
    answer = ada.get(f"/audit/{before}")
    assert answer.status_code == 302
    assert QueryDict(answer["Location"].partition("?")[2])["q"] == query
    assert ada.get(answer["Location"]).status_code == 200


def test_a_chosen_event_of_the_former_list_opens_on_its_page(ada: Client, call: AuditEvent) -> None:
    page = text(ada.get(f"/audit/?sel={call.seq}", follow=True))
    for words in ("Call requested", "Call sent", "Call finished", "ord_41F9", "refunded-4711", "192.0.2.7", call.hash):
        assert words in page
    assert f"Hash valid, follows #{call.seq - 1}" in page
    assert "Hash valid, first event" in text(ada.get(f"/audit/{AuditEvent.objects.order_by('seq')[0].seq}/"))


def test_an_event_has_a_page_of_its_own(ada: Client, call: AuditEvent) -> None:
    assert "refunded-4711" in text(ada.get(f"/audit/{call.seq}/"))
    assert ada.get("/audit/999/").status_code == 404


def test_what_a_server_named_itself_is_shown_and_never_run(ada: Client, call: AuditEvent) -> None:
    page = text(ada.get(f"/audit/{call.seq}/"))
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page


def test_payloads_need_a_permission_of_their_own(call: AuditEvent) -> None:
    page = text(signed_in("view_auditevent").get(f"/audit/{call.seq}/"))
    assert "refunded-4711" not in page
    assert "ord_41F9" not in page
    assert "have permission to read arguments and results" in page
    assert "refunded-4711" in text(
        signed_in_again("view_server", "view_auditevent", "view_payload").get(f"/audit/{call.seq}/")
    )


def signed_in_again(*permissions: str) -> Client:
    client = Client()
    client.force_login(person("rosa", *permissions))
    return client


def test_an_erased_and_a_changed_payload_are_called_so(ada: Client, call: AuditEvent) -> None:
    arguments, result = Payload.objects.order_by("id")
    payloads.erase(arguments)
    Payload.objects.filter(pk=result.pk).update(text='"forged"')
    page = text(ada.get(f"/audit/{call.seq}/"))
    assert "Erased " in page
    assert "its digest does not match" in page


def test_a_payload_that_cannot_be_read_any_more_is_called_modified(ada: Client, call: AuditEvent) -> None:
    Payload.objects.filter(kind=PayloadKind.RESULT).update(text="", blob=b"no zlib")
    page = text(ada.get(f"/audit/{call.seq}/"))
    assert "Modified: what is stored can no longer be read" in page
    assert "ord_41F9" in page


def test_a_change_shows_before_and_after_and_no_secret(ada: Client, admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header()]))
    registering.change(actor, admin, server, over_http(description="New words", values=[header(value="canary-9")]), 1)
    change = AuditEvent.objects.get(action=AuditAction.SERVER_CHANGE)
    page = text(ada.get(f"/audit/{change.seq}/"))
    assert "New words" in page
    assert "header Authorization" in page
    assert "canary" not in page


@pytest.mark.usefixtures("tamperable")
def test_a_changed_event_is_shown_as_broken(ada: Client, call: AuditEvent) -> None:
    AuditEvent.objects.filter(pk=call.pk).update(actor_name="eve")
    assert "The hash chain is broken here" in text(ada.get(f"/audit/{call.seq}/"))


@pytest.mark.usefixtures("tamperable")
@pytest.mark.parametrize(
    "changed",
    [{"body": '{"seq":'}, {"body": "[]"}, {"body": '{"details":7,"digests":{"arguments":[]}}'}, {"action": "eve"}],
)
def test_an_event_that_cannot_be_read_any_more_is_shown_as_broken(
    ada: Client, call: AuditEvent, changed: dict[str, str]
) -> None:
    AuditEvent.objects.filter(pk=call.pk).update(**changed)
    assert "The hash chain is broken here" in text(ada.get(f"/audit/{call.seq}/"))
    assert "The hash chain is broken here" not in text(ada.get(f"/audit/{call.seq - 1}/")), "another of the same call"


@pytest.mark.usefixtures("tamperable")
def test_the_page_of_an_event_that_was_removed_says_so_and_leads_to_those_around_it(
    ada: Client, call: AuditEvent
) -> None:
    middle = call.seq - 1
    AuditEvent.objects.filter(seq=middle).delete()
    page = text(ada.get(f"/audit/{middle}/"), 404)
    assert f"Event {middle} is missing" in page
    for address in (f"/audit/{middle - 1}/", f"/audit/{middle + 1}/", "/audit/proof/"):
        assert f'href="{address}"' in page
    Checkpoint.objects.create(
        kind=StatementKind.CUT, seq=middle, hash=call.hash, at=call.at, key_id="0" * 8, note="unread"
    )
    assert f"Retention removed all events up to #{middle}" in text(ada.get(f"/audit/{middle}/"), 404)
    for number in (0, call.seq + 1_000):
        assert "This event does not exist." in text(ada.get(f"/audit/{number}/"), 404)


@pytest.mark.usefixtures("tamperable")
@pytest.mark.parametrize("column", ["at", "server_uid"])
def test_an_event_whose_columns_cannot_be_read_has_a_page_that_says_so(
    ada: Client, call: AuditEvent, column: str
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE servers_auditevent SET {column} = 'never' WHERE seq = %s", [call.seq])  # noqa: S608  # a name of this test
    page = text(ada.get(f"/audit/{call.seq}/"))
    assert f"The columns of event {call.seq} cannot be read." in page
    assert f'href="/audit/{call.seq - 1}/"' in page


@pytest.mark.parametrize("url", ["/audit/", "/audit/1/"])
def test_without_permission_the_log_is_refused_and_the_try_is_in_it(url: str) -> None:
    client = signed_in("view_server")
    text(client.get(url), 403)
    event = AuditEvent.objects.order_by("-seq")[0]
    assert (event.action, event.actor_name, event.outcome) == (AuditAction.PERMISSION_DENY, "rita", AuditOutcome.DENIED)


def test_a_visitor_is_sent_to_the_sign_in(client: Client) -> None:
    assert client.get("/audit/").status_code == 302
