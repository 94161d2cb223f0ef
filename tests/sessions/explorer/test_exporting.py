"""What an export of a query holds, on rows of the tables."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from servers.audit.record import Actor, ServerRef
from servers.enums import AuditAction, AuditOutcome
from servers.exporting.selection import QueryNotUnderstood, events_of
from sessions.mcp.core.methods import COMPLETE
from sessions.models import Call, McpSession
from tests.servers.conftest import person
from tests.sessions.explorer.rows import catch_up, ended_call, event
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> Any:
    return get_user_model().objects.create_superuser("admin", password="x")


def found(user: Any, text: str) -> set[Any]:
    """The uid of the call of each step, the subject of each other event."""
    return {one.call_uid or one.subject for one in events_of(user, text)} - {"admin"}


def test_a_query_exports_all_steps_of_its_calls_and_its_other_events(admin: Any) -> None:
    session = make_session()
    slow, quick = ended_call(session, "pay", seconds=3), ended_call(session, "pay")
    old = ended_call(session, "pay", seconds=3, ago=timedelta(days=2))
    event(AuditAction.SIGN_IN, "grace")
    assert found(admin, "") == {slow.uid, quick.uid, old.uid, "grace"}
    assert found(admin, "tool:pay duration:>2s") == {slow.uid, old.uid}
    assert found(admin, "duration:>2s last:1h") == {slow.uid}
    assert found(admin, "kind:sign-in") == {"grace"}
    assert found(admin, "in:events") == {"grace"}
    assert found(admin, "-tool:pay") == {"grace"}
    name = ended_call(session, "ref/prompt:p", method=COMPLETE)
    assert found(admin, "last:1h") == {slow.uid, quick.uid, "grace"}
    assert found(admin, "last:1h own:show") == {slow.uid, quick.uid, name.uid, "grace"}
    assert found(admin, "own:only") == {name.uid}


def test_a_call_is_exported_with_its_approval_and_the_readings_of_it_by_others(admin: Any) -> None:
    ann, bob = person("ann", "view_server"), Actor.of_user(person("bob", "view_server"))
    call = ended_call(make_session(), "pay", user=ann)
    event(AuditAction.APPROVAL_GRANT, "pay", bob, call_uid=call.uid)
    event(AuditAction.PAYLOAD_READ, "pay", bob, call_uid=call.uid)
    for text in ("in:calls tool:pay", "in:calls user:ann", "in:calls way:page outcome:ok"):
        assert [one.action for one in events_of(admin, text).order_by("seq")] == [
            AuditAction.CALL_FINISH,
            AuditAction.APPROVAL_GRANT,
            AuditAction.PAYLOAD_READ,
        ], text


def test_a_call_that_the_retention_removed_is_exported_by_what_its_events_say(admin: Any) -> None:
    session = make_session("bank")
    ann, bob = person("ann", "view_server"), person("bob", "view_server")
    gone, kept = requested_and_ended(session, "pay", ann), requested_and_ended(session, "pay", bob)
    event(AuditAction.APPROVAL_GRANT, "pay", Actor.of_user(bob), call_uid=gone.uid)
    Call.objects.filter(pk=gone.pk).delete()
    for text in (
        "in:calls user:ann",
        "in:calls tool:pay server:bank outcome:ok -user:bob",
        "in:calls last:1h -user:bob",
    ):
        events = events_of(admin, text)
        assert {one.call_uid for one in events} == {gone.uid}, text
        assert {one.action for one in events} == {
            AuditAction.CALL_REQUEST,
            AuditAction.CALL_FINISH,
            AuditAction.APPROVAL_GRANT,
        }, text
    assert found(admin, "in:calls tool:pay") == {gone.uid, kept.uid}
    for text in ("tool:other", "user:bob", "outcome:error", "until:2020-01-01", "duration:>0s", "own:only"):
        assert gone.uid not in found(admin, f"in:calls {text}"), text
    assert {one.action for one in events_of(admin, "in:events kind:call:tool:request")} == {AuditAction.CALL_REQUEST}


def requested_and_ended(session: McpSession, tool: str, user: Any) -> Call:
    call = ended_call(session, tool, user=user)
    server, actor = ServerRef.of(session.server), Actor.of_user(user)
    event(AuditAction.CALL_REQUEST, tool, actor, AuditOutcome.PENDING, server=server, call_uid=call.uid)
    return call


def test_free_text_exports_what_the_index_finds(admin: Any) -> None:
    session = make_session()
    acme = ended_call(session, "pay", arguments={"customer": "acme"})
    ended_call(session, "pay", arguments={"customer": "other"})
    catch_up()
    assert found(admin, "acme") == {acme.uid}
    assert found(admin, "in:calls -acme") == set(Call.objects.exclude(pk=acme.pk).values_list("uid", flat=True))


def test_without_permission_to_read_payloads_the_words_in_them_select_nothing(admin: Any) -> None:
    ended_call(make_session(), "pay", arguments={"customer": "acme"})
    catch_up()
    auditor = person("vera", "view_server", "view_auditevent")
    assert found(auditor, "acme") == set()
    assert found(auditor, "tool:pay") != set()


def test_a_query_that_cannot_be_read_is_refused_in_words(admin: Any) -> None:
    with pytest.raises(QueryNotUnderstood, match="Unknown field “nonsense”"):
        events_of(admin, "nonsense:x")
