"""What an export of a query holds, on rows of the tables."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from servers.enums import AuditAction
from servers.exporting.selection import QueryNotUnderstood, events_of
from sessions.mcp.core.methods import COMPLETE
from sessions.models import Call
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
