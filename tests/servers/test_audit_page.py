"""The audit page works through the whole stack of middleware and templates."""

import re
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from servers.audit import payloads
from servers.audit.record import Actor, Event, ServerRef, record, record_many
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from servers.models import AuditEvent, Payload
from servers.registration import registering
from tests.servers.cast import header, over_http
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def ada(client: Client, admin: Any) -> Client:
    client.force_login(admin)
    return client


def signed_in(*rights: str) -> Client:
    client = Client()
    client.force_login(person("rita", *rights))
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


def test_the_first_page_is_live_from_its_newest_event_on(ada: Client, call: AuditEvent) -> None:
    page = text(ada.get("/audit/"))
    newest = AuditEvent.objects.order_by("-seq")[0].seq
    assert f'data-live-topic="audit" data-live-since="{newest}" data-live-list="audit"' in page
    assert "<template data-row>" in page
    assert "Call finished" in page


def test_a_filtered_page_is_fed_with_what_matches(ada: Client, call: AuditEvent) -> None:
    page = text(ada.get("/audit/?outcome=ok&kind=calls"))
    assert 'data-live-list="audit?kind=calls&amp;outcome=ok"' in page
    assert "Signed in" not in page.split("<tbody")[1]


def test_an_older_page_and_one_without_a_match_count_what_matches(ada: Client, call: AuditEvent) -> None:
    for address in (f"/audit/?kind=calls&before={call.seq}", "/audit/?text=nothing-like-it"):
        page = text(ada.get(address))
        assert "data-live-list" not in page
        assert 'data-new-events data-live-topic="audit?' in page


def test_filters_stand_in_the_form_and_in_the_links_of_pages(ada: Client) -> None:
    record_many([Event(AuditAction.CALL_SEND, AuditOutcome.OK, Actor(1, "ada"), subject="echo") for _ in range(60)])
    page = text(ada.get("/audit/?kind=calls&text=echo&since=2020-01-01T00:00"))
    assert '<option value="calls" selected>' in page
    assert 'value="echo"' in page
    assert 'value="2020-01-01T00:00"' in page
    older = unescape(re.findall(r'href="\?([^"]*before=[^"]*)"', page)[0])
    assert {"kind=calls", "text=echo"} <= set(older.split("&"))
    assert "before=" in older
    second = text(ada.get(f"/audit/?{older}"))
    assert second.count("Call sent") >= 10
    assert 'data-live-topic="audit"' not in second


def test_no_match_names_the_way_out(ada: Client) -> None:
    page = text(ada.get("/audit/?text=nothing-like-it&kind=calls"))
    assert "No matching events" in page
    assert 'href="?text=nothing-like-it"' in page
    assert 'href="?kind=calls"' in page
    assert "Show all events" in page


def test_a_row_opens_the_whole_exchange_beside_the_list(ada: Client, call: AuditEvent) -> None:
    page = text(ada.get(f"/audit/?sel={call.seq}"))
    drawer = page.split('id="event"')[1]
    for words in ("Call requested", "Call sent", "Call finished", "ord_41F9", "refunded-4711", "192.0.2.7", call.hash):
        assert words in drawer
    assert "Hash valid, follows" in drawer
    assert 'aria-selected="true"' in page


def test_an_event_has_a_page_of_its_own(ada: Client, call: AuditEvent) -> None:
    assert "refunded-4711" in text(ada.get(f"/audit/{call.seq}/"))
    assert ada.get("/audit/999/").status_code == 404
    assert "Call finished" in text(ada.get("/audit/?sel=999"))


def test_what_a_server_named_itself_is_shown_and_never_run(ada: Client, call: AuditEvent) -> None:
    for url in ("/audit/", f"/audit/{call.seq}/"):
        page = text(ada.get(url))
        assert HOSTILE not in page
        assert "&lt;script&gt;" in page


def test_payloads_need_a_right_of_their_own(call: AuditEvent) -> None:
    page = text(signed_in("view_auditevent").get(f"/audit/{call.seq}/"))
    assert "refunded-4711" not in page
    assert "ord_41F9" not in page
    assert "have permission to view arguments and results" in page
    assert "refunded-4711" in text(signed_in_again("view_auditevent", "view_payload").get(f"/audit/{call.seq}/"))


def signed_in_again(*rights: str) -> Client:
    client = Client()
    client.force_login(person("rosa", *rights))
    return client


def test_an_erased_and_a_changed_payload_are_called_so(ada: Client, call: AuditEvent) -> None:
    arguments, result = Payload.objects.order_by("id")
    payloads.erase(arguments)
    Payload.objects.filter(pk=result.pk).update(text='"forged"')
    page = text(ada.get(f"/audit/{call.seq}/"))
    assert "Erased " in page
    assert "its digest does not match" in page


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


@pytest.mark.parametrize("url", ["/audit/", "/audit/1/"])
def test_without_the_right_the_log_is_refused_and_the_try_is_in_it(url: str) -> None:
    client = signed_in("view_server")
    text(client.get(url), 403)
    event = AuditEvent.objects.order_by("-seq")[0]
    assert (event.action, event.actor_name, event.outcome) == (AuditAction.PERMISSION_DENY, "rita", AuditOutcome.DENIED)


def test_a_visitor_is_sent_to_the_sign_in(client: Client) -> None:
    assert client.get("/audit/").status_code == 302


def test_the_page_takes_the_same_queries_for_one_row_and_for_fifty(
    ada: Client, django_assert_max_num_queries: Any
) -> None:
    record_many([Event(AuditAction.CALL_SEND, AuditOutcome.OK, Actor(1, "ada")) for _ in range(60)])
    with django_assert_max_num_queries(11):
        ada.get("/audit/")
