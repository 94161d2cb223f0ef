"""A sign-in belongs to one person, one browser and one state, and each of its steps happens once."""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from servers import access
from servers.access import Denied
from servers.audit.record import Actor
from servers.credentials import authorizations, grants, identities, vault
from servers.credentials.binding import place_of
from servers.enums import AuditAction, AuthorizationState, SignsInAs
from servers.models import AuditEvent, Credential, CredentialUse, Identity, Server, ServerAuthorization
from servers.registration import registering
from servers.secret import Secret
from tests.servers.cast import over_http, over_stdio
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
BROWSER, STATE, URL = "browser-session-key", "state-of-256-bits", "https://mcp.example.com/mcp"


@pytest.fixture
def server(admin: Any, actor: Actor) -> Server:
    return registering.register(actor, admin, over_http())


@pytest.fixture
def ready(admin: Any, actor: Actor, server: Server) -> ServerAuthorization:
    row = authorizations.begin(
        actor, admin, server, BROWSER, authorizations.ChosenClient("client-1", "canary-client-secret")
    )
    taken = authorizations.take(row.uid)
    assert taken is not None
    assert authorizations.take(row.uid) is None, "two workers never do the same step"
    assert authorizations.ready(
        taken, "https://login.example", STATE, {"verifier": "canary-verifier"}, "https://login.example/?x"
    )
    return ServerAuthorization.objects.get()


def back(user: Any, browser: str = BROWSER, **parameters: str) -> ServerAuthorization:
    return authorizations.answer(user, browser, {"state": STATE, "code": "canary-code"} | parameters)


def test_a_journey_goes_there_and_back_once_and_leaves_nothing_sealed(ready: ServerAuthorization, admin: Any) -> None:
    assert authorizations.address(ready) == "https://login.example/?x"
    back(admin)
    with pytest.raises(authorizations.Forged):
        back(admin)
    taken = authorizations.take(ready.uid)
    assert taken is not None
    assert authorizations.opened(taken, "client")["client_secret"] == "canary-client-secret"
    assert authorizations.opened(taken, "answer")["code"] == "canary-code"
    assert len(authorizations.done(taken)) == 1
    assert authorizations.done(taken) == []
    row = ServerAuthorization.objects.values().get()
    assert row["state"] == AuthorizationState.DONE
    assert [row[f"sealed_{part}"] for part in ("client", "pending", "url", "answer")] == [None] * 4


def test_no_value_of_a_journey_is_in_clear(ready: ServerAuthorization, admin: Any) -> None:
    back(admin)
    row = repr(ServerAuthorization.objects.values().get())
    assert "canary" not in row
    assert STATE not in row
    assert BROWSER not in row


def test_another_person_another_browser_or_another_state_is_refused(ready: ServerAuthorization, admin: Any) -> None:
    stranger = person("eve", "view_server", "change_server", "view_credential", "manage_credential")
    for user, browser, more in (
        (stranger, BROWSER, {}),
        (admin, "another-browser", {}),
        (admin, BROWSER, {"state": "forged"}),
        (admin, BROWSER, {"state": ""}),
        (admin, BROWSER, {f"p{number}": "x" for number in range(20)}),
        (admin, BROWSER, {"large": "x" * 10_000}),
    ):
        with pytest.raises(authorizations.Forged):
            back(user, browser, **more)
    assert ServerAuthorization.objects.get().state == AuthorizationState.READY
    assert authorizations.of_person(stranger, BROWSER, ready.uid) is None
    assert authorizations.of_person(admin, "another-browser", ready.uid) is None


def test_an_answer_that_comes_after_ten_minutes_is_refused(ready: ServerAuthorization, admin: Any) -> None:
    ServerAuthorization.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(authorizations.Forged):
        back(admin)


def test_an_answer_in_the_last_moment_leaves_a_worker_the_time_to_fetch_the_token(
    ready: ServerAuthorization, admin: Any
) -> None:
    soon = timezone.now() + timedelta(seconds=5)
    ServerAuthorization.objects.update(expires_at=soon)
    back(admin)
    assert ServerAuthorization.objects.get().expires_at > soon + timedelta(seconds=60)


def test_who_lost_the_permission_meanwhile_completes_no_sign_in(server: Server, actor: Actor) -> None:
    eve = person("eve", "view_server", "change_server", "view_credential", "manage_credential")
    row = authorizations.begin(Actor.of_user(eve), eve, server, BROWSER)
    taken = authorizations.take(row.uid)
    assert taken is not None
    authorizations.ready(taken, "https://login.example", STATE, {}, "https://login.example/?x")
    eve.user_permissions.remove(Permission.objects.get(codename="manage_credential"))
    with pytest.raises(Denied):
        back(get_user_model().objects.get(pk=eve.pk))
    assert ServerAuthorization.objects.get().state == AuthorizationState.READY


def test_a_sealed_part_does_not_open_as_another_part(ready: ServerAuthorization) -> None:
    ready.sealed_url, ready.url_key_id = ready.sealed_pending, ready.pending_key_id
    with pytest.raises(Exception, match="changed or moved"):
        authorizations.address(ready)


def test_who_may_not_manage_credentials_begins_nothing(server: Server, operator: Any) -> None:
    with pytest.raises(Denied):
        authorizations.begin(Actor.of_user(operator), operator, server, BROWSER)
    assert not ServerAuthorization.objects.exists()


def test_a_local_process_and_plain_http_have_no_sign_in(admin: Any, actor: Actor) -> None:
    for data in (over_stdio(), over_http(name="Plain", url="http://mcp.example.com/")):
        with pytest.raises(ValidationError):
            authorizations.begin(actor, admin, registering.register(actor, admin, data), BROWSER)


# --- personal identities ----------------------------------------------------------------------------------------------------
@pytest.fixture
def bea(db: None) -> Any:
    return person("bea", "view_server", "call_tool")


@pytest.fixture
def either(server: Server) -> Server:
    Server.objects.update(signs_in_as=SignsInAs.EITHER)
    server.refresh_from_db()
    return server


def signing_in(user: Any, server: Server) -> ServerAuthorization:
    """A sign-in whose worker contacts the authorization server."""
    taken = authorizations.take(authorizations.begin_own(Actor.of_user(user), user, server, BROWSER).uid)
    assert taken is not None
    return taken


def completed(row: ServerAuthorization) -> Identity:
    ServerAuthorization.objects.filter(pk=row.pk).update(state=AuthorizationState.FINISHING)
    assert authorizations.done(row)
    return row.identity


def test_an_own_identity_comes_into_use_once_its_first_sign_in_is_complete(either: Server, bea: Any) -> None:
    row = signing_in(bea, either)
    assert access.identity_key(bea, either) is None
    assert not AuditEvent.objects.filter(action=AuditAction.IDENTITY_CREATE).exists()
    assert kept(row.identity, "canary-one", 1)
    assert access.identity_key(bea, either) is None
    ServerAuthorization.objects.update(state=AuthorizationState.FINISHING)
    events = authorizations.done(row)
    assert [event.action for event in events] == [AuditAction.IDENTITY_CREATE, AuditAction.SIGN_IN_END]
    assert access.identity_key(bea, either) == row.identity_id


def test_a_sign_in_that_is_not_completed_leaves_the_shared_identity_in_use_and_nothing_behind(
    either: Server, bea: Any
) -> None:
    for over in ("failed", "expired"):
        row = signing_in(bea, either)
        kept(row.identity, "", 0, signed_in=False)  # the client that was registered for it
        if over == "failed":
            assert authorizations.failed(row, "The authorization server is away.")
        ServerAuthorization.objects.update(expires_at=timezone.now() - 2 * authorizations.LIFETIME)
        assert access.identity_key(bea, either) is None
        authorizations.purge()
        assert not Credential.objects.exists()
        with pytest.raises(grants.GrantMissing):
            kept(row.identity, "canary-late", 1)


def test_a_further_sign_in_leaves_the_own_identity_in_use(either: Server, bea: Any) -> None:
    mine = completed(signing_in(bea, either))
    authorizations.failed(signing_in(bea, either), "The authorization server is away.")
    authorizations.purge()
    assert access.identity_key(bea, either) == mine.pk


def test_sign_ins_that_are_not_complete_count_toward_the_personal_identities_of_a_server(
    either: Server, bea: Any, settings: Any
) -> None:
    settings.PERSONAL_SESSIONS = 1
    for _ in range(2):
        signing_in(bea, either)
    with pytest.raises(ValidationError, match="1 personal identities"):
        signing_in(person("carl", "view_server", "call_tool"), either)
    ServerAuthorization.objects.update(expires_at=timezone.now())
    signing_in(person("dora", "view_server", "call_tool"), either)


# --- grants --------------------------------------------------------------------------------------------------------------
def kept(
    identity: Identity, token: str, generation: int, *, signed_in: bool = True, renewed: int | None = None
) -> bool:
    """`identity`: with its server as its worker knows it."""
    shown = {
        "issuer": "https://login.example",
        "generation": generation,
        "signed_in": signed_in,
        "expires_at": None,
        "scopes": ["tools"],
        "client": "c",
    }
    with transaction.atomic():
        text = Secret(json.dumps({"access_token": token}))
        return grants.save(identity.pk, place_of(identity.server), text, shown, renewed)


def token_of(identity: Identity) -> str:
    found = grants.load(identity.pk, place_of(identity.server))
    return "" if found is None else str(json.loads(found.text.reveal())["access_token"])


def test_an_older_grant_never_replaces_a_newer_one(server: Server) -> None:
    identity = Identity.objects.get(server=server)
    assert token_of(identity) == ""
    assert kept(identity, "canary-one", 1)
    assert kept(identity, "canary-three", 3)
    assert not kept(identity, "canary-two", 2)
    assert token_of(identity) == "canary-three"
    assert b"canary" not in bytes(Credential.objects.get().sealed or b"")


def test_one_holder_at_a_time_and_a_dead_one_is_succeeded(server: Server) -> None:
    identity = Identity.objects.get(server=server)
    one, other = uuid4(), uuid4()
    assert grants.hold(identity.pk, one), "nothing can be refreshed by two yet"
    kept(identity, "canary-one", 1)
    assert grants.hold(identity.pk, one)
    assert not grants.hold(identity.pk, other)
    grants.release(one)
    assert grants.hold(identity.pk, other)
    Credential.objects.update(held_until=timezone.now() - timedelta(seconds=1))
    assert grants.hold(identity.pk, one)
    Credential.objects.update(held_until=timezone.now() + timedelta(hours=1))  # then the clock was set back
    assert grants.hold(identity.pk, other)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_worker_whose_clock_is_ahead_does_not_refresh_beside_another(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """Its refresh would use up the token of the other: many authorization servers then revoke the whole grant."""
    if database == "postgres":
        request.getfixturevalue("on_postgres")
    identity = Identity.objects.create(server=Server.objects.create(slug="s", name="S", transport="auto_http", url=URL))
    kept(identity, "canary-one", 1)
    one, other = uuid4(), uuid4()
    assert grants.hold(identity.pk, one)
    ahead = timezone.now() + timedelta(minutes=5)
    monkeypatch.setattr(timezone, "now", lambda: ahead)
    assert not grants.hold(identity.pk, other)
    grants.release(one)
    assert grants.hold(identity.pk, other)
    monkeypatch.undo()
    held = Credential.objects.get().held_until
    assert held is not None
    assert held < timezone.now() + grants.HOLD + timedelta(seconds=1), "and a worker that died is succeeded in time"


def test_a_grant_does_not_follow_a_server_that_moved(server: Server, admin: Any, actor: Actor) -> None:
    identity = Identity.objects.get(server=server)
    kept(identity, "canary-one", 1)
    registering.change(actor, admin, server, over_http(url="https://elsewhere.example/mcp"), server.version)
    identity.refresh_from_db()
    assert token_of(identity) == ""
    assert kept(identity, "canary-new", 1)
    assert token_of(identity) == "canary-new"
    assert CredentialUse.objects.filter(blanked_at=None).count() == 1
    assert not CredentialUse.objects.exclude(blanked_at=None).exists(), "the old one is not waited for any more"


def test_a_token_that_comes_after_its_server_moved_is_not_for_the_new_place(
    server: Server, admin: Any, actor: Actor
) -> None:
    before = Identity.objects.select_related("server").get(server=server)
    kept(before, "canary-one", 1)
    row = Credential.objects.get()
    registering.change(actor, admin, server, over_http(url="https://elsewhere.example/mcp"), server.version)
    moved = Identity.objects.select_related("server").get(server=server)
    assert kept(before, "canary-two", 2, renewed=row.pk)
    assert (token_of(moved), token_of(before)) == ("", "")
    with pytest.raises(grants.GrantMissing):
        kept(before, "canary-first", 1)
    assert Credential.objects.get() == row
    assert kept(moved, "canary-new", 1)
    assert token_of(moved) == "canary-new"
    assert token_of(before) == "", "a session that still has the old address does not send it there"


def test_a_token_that_comes_after_its_sign_in_was_removed_brings_nothing_back(
    server: Server, admin: Any, actor: Actor
) -> None:
    shared = Identity.objects.get(server=server)
    kept(shared, "canary-one", 7)
    row = Credential.objects.get()
    vault.delete(actor, admin, row)
    with pytest.raises(grants.GrantMissing):
        kept(shared, "canary-two", 8, renewed=row.pk)
    kept(shared, "canary-new", 1)
    with pytest.raises(grants.GrantMissing):
        kept(shared, "canary-two", 8, renewed=row.pk)
    assert token_of(shared) == "canary-new"


def test_a_sign_in_of_an_identity_that_was_ended_meanwhile_stores_nothing(either: Server, bea: Any) -> None:
    completed(signing_in(bea, either))
    row = signing_in(bea, either)
    assert identities.end(Actor.of_user(bea), bea, either)
    with pytest.raises(grants.GrantMissing):
        kept(row.identity, "canary-one", 1)
    assert not Credential.objects.exists()


def test_who_gives_an_identity_up_leaves_no_grant_of_an_earlier_address_behind(
    either: Server, bea: Any, admin: Any, actor: Actor
) -> None:
    mine = completed(signing_in(bea, either))
    kept(mine, "canary-one", 1)
    elsewhere = over_http(url="https://elsewhere.example/mcp", signs_in_as=SignsInAs.EITHER)
    registering.change(actor, admin, either, elsewhere, either.version)
    kept(Identity.objects.select_related("server").get(pk=mine.pk), "canary-two", 1)
    assert identities.end(Actor.of_user(bea), bea, either)
    assert not Credential.objects.exists()


def test_the_name_of_a_sign_in_fits_its_column_however_long_those_of_server_and_person_are(server: Server) -> None:
    Server.objects.update(name="s" * 120, signs_in_as=SignsInAs.EITHER)
    server.refresh_from_db()
    for name in ("b" * 149, "b" * 150):
        kept(signing_in(person(name, "view_server", "call_tool"), server).identity, "canary-one", 1)
    kept(Identity.objects.get(server=server, kind="shared"), "canary-one", 1)
    most = Credential._meta.get_field("name").max_length
    assert max(len(row.name) for row in Credential.objects.all()) <= most
    assert Credential.objects.count() == 3


def test_a_refused_refresh_is_on_the_board(server: Server) -> None:
    identity = Identity.objects.get(server=server)
    kept(identity, "canary-one", 1)
    kept(identity, "", 1, signed_in=False)
    row = Credential.objects.get()
    assert row.refresh_fault == "No user is signed in."
    assert row.refreshed_at is not None


def test_a_worker_finds_what_waits_for_it_and_what_was_left(
    ready: ServerAuthorization, admin: Any, actor: Actor, server: Server
) -> None:
    assert authorizations.waiting([]) == [], "a browser is under way"
    back(admin)
    assert authorizations.waiting([]) == [ready.uid]
    Server.objects.update(worker_label="gpu")
    assert (authorizations.waiting([]), authorizations.waiting(["gpu"])) == ([], [ready.uid])
    authorizations.take(ready.uid)
    assert (authorizations.waiting(["gpu"]), authorizations.end_lost()) == ([], [])
    ServerAuthorization.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert len(authorizations.end_lost()) == 1
    row = ServerAuthorization.objects.values().get()
    assert (row["state"], row["sealed_answer"], row["sealed_pending"]) == (AuthorizationState.FAILED, None, None)
    late = authorizations.begin(actor, admin, server, BROWSER)
    ServerAuthorization.objects.filter(pk=late.pk).update(expires_at=timezone.now())
    assert authorizations.waiting(["gpu"]) == [], "an expired one is nobody's any more"
