from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.utils import timezone

from servers import access
from servers.audit.record import Actor
from servers.crypto import SealBroken
from servers.enums import DraftState
from servers.models import ServerDraft
from servers.registration import registering
from servers.registration.drafts import open_draft, purge_drafts, update_draft
from servers.registration.resolved_values import draft_launch_values
from servers.secret import Secret
from servers.signals import draft_changed
from tests.servers.cast import CANARY, create_draft, header, over_http, over_stdio, variable
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db


def test_a_draft_is_sealed_whole_and_opens_with_its_secrets(admin: Any, actor: Actor) -> None:
    data = over_stdio(tags=["a-tag-to-look-for"], values=[variable(), variable("PLAIN", "shown", secret=False)])
    draft = ServerDraft.objects.get(pk=create_draft(actor, admin, data).pk)
    assert b"a-tag-to-look-for" not in bytes(draft.sealed)
    opened = open_draft(draft)
    values = draft_launch_values(opened).environment
    assert isinstance(values["API_TOKEN"], Secret)
    assert (values["API_TOKEN"].reveal(), values["PLAIN"]) == (CANARY, "shown")
    assert (opened.command, opened.arguments, opened.tags) == ("npx", ["-y", "files"], ["a-tag-to-look-for"])


def test_a_draft_of_an_edit_takes_the_secrets_that_were_kept(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header()]))
    draft = create_draft(actor, admin, over_http(url="https://mcp.example.com/v2", values=[header(value=None)]), server)
    assert draft_launch_values(open_draft(draft)).headers["Authorization"].reveal() == CANARY


def test_a_draft_sends_no_kept_secret_to_another_origin(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header()]))
    with pytest.raises(ValidationError, match="Authorization"):
        create_draft(actor, admin, over_http(url="https://evil.example/", values=[header(value=None)]), server)
    assert not ServerDraft.objects.exists()


def test_a_kept_secret_without_a_server_is_asked_for(admin: Any, actor: Actor) -> None:
    with pytest.raises(ValidationError, match="Authorization"):
        create_draft(actor, admin, over_http(values=[header(value=None)]))


def test_a_draft_moved_to_another_row_does_not_open(admin: Any, actor: Actor) -> None:
    one, two = (create_draft(actor, admin, over_http(name=name)) for name in "ab")
    two.sealed = one.sealed
    with pytest.raises(SealBroken):
        open_draft(two)


def test_a_draft_is_its_authors_alone_and_only_for_an_hour(admin: Any, actor: Actor) -> None:
    draft = create_draft(actor, admin, over_http())
    assert access.draft_for(admin, draft.uid) == draft
    with pytest.raises(Exception, match="expired"):
        access.draft_for(person("eve"), draft.uid)
    ServerDraft.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(Exception, match="expired"):
        access.draft_for(admin, draft.uid)
    assert purge_drafts() == 1


@pytest.mark.django_db(transaction=True)
def test_what_the_worker_finds_out_raises_the_version_and_tells(admin: Any, actor: Actor) -> None:
    draft = create_draft(actor, admin, over_http())
    told: list[Any] = []

    def hear(draft_uid: Any, **_: Any) -> None:
        told.append(draft_uid)

    draft_changed.connect(hear)
    try:
        assert update_draft(draft.uid, state=DraftState.RUNNING, steps=[{"name": "resolve", "state": "started"}])
        draft.delete()
        assert not update_draft(draft.uid, state=DraftState.FAILED)
    finally:
        draft_changed.disconnect(hear)
    assert told == [draft.uid]
    with pytest.raises(ValueError, match="sealed"):
        update_draft(draft.uid, sealed=b"")


def test_a_visitor_may_not_test(visitor: Any) -> None:
    with pytest.raises(PermissionDenied):
        create_draft(Actor.of_user(visitor), visitor, over_http())
