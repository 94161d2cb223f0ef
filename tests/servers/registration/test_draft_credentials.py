"""Testing, registering or copying a server uses vault credentials by reference, and only for their own address."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, ValidationError

from servers import crypto
from servers.audit.record import Actor
from servers.credentials import vault
from servers.credentials.kinds import Parts
from servers.enums import AuditAction, CredentialKind, IdentityKind
from servers.models import AuditEvent, Credential, CredentialUse, Identity, Server, ServerDraft
from servers.registration import needed_credentials, registering
from servers.registration.drafts import FIELD, TABLE, open_draft, vault_of
from servers.registration.resolved_values import LaunchValues, NotLaunchable, draft_launch_values
from servers.secret import Secret
from tests.servers.cast import create_draft, header, over_http, over_stdio
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
TOKEN = "canary-draft-token-31"
URL = "https://mcp.example.com/mcp"
ELSEWHERE = "https://evil.example/mcp"


@pytest.fixture
def add(admin: Any, actor: Actor) -> Callable[..., Credential]:
    def create(name: str = "Orders key", url: str = URL) -> Credential:
        parts = Parts(CredentialKind.BEARER, {}, {"token": Secret(TOKEN)})
        return vault.create(actor, admin, name, parts, url)

    return create


@pytest.fixture
def token(add: Callable[..., Credential]) -> Credential:
    return add()


@pytest.fixture
def variable(admin: Any, actor: Actor) -> Credential:
    parts = Parts(CredentialKind.ENVIRONMENT, {"variable": "API_KEY"}, {"value": Secret(TOKEN)})
    return vault.create(actor, admin, "Key of a process", parts)


@pytest.fixture
def server(admin: Any, actor: Actor, token: Credential) -> Server:
    made = registering.register(actor, admin, over_http(url=URL))
    vault.attach(actor, admin, made, token)
    return made


def grant_for(server: Server) -> Credential:
    """A grant as a sign-in creates it."""
    parts = {"kind": CredentialKind.OAUTH, "scheme": "https", "host": "mcp.example.com", "port": 443}
    made: Credential = Credential.objects.create(name="Orders sign-in", sealed_at=server.created_at, **parts)
    identity = Identity.objects.get(server=server, kind=IdentityKind.SHARED)
    CredentialUse.objects.create(credential=made, identity=identity)
    return made


def launched(draft: ServerDraft) -> LaunchValues:
    return draft_launch_values(open_draft(draft), vault_of(draft))


def sent(draft: ServerDraft) -> str:
    value = launched(draft).headers["Authorization"]
    assert isinstance(value, Secret)
    return value.reveal()


def test_a_draft_is_tried_with_the_credential_that_was_chosen_and_holds_no_value_of_it(
    admin: Any, actor: Actor, token: Credential
) -> None:
    draft = create_draft(actor, admin, over_http(url=URL), None, [token])
    assert sent(draft) == f"Bearer {TOKEN}"
    whole = crypto.open_sealed(draft.sealed, key_id=draft.key_id, table=TABLE, uid=draft.uid, field=FIELD)
    assert TOKEN not in whole.reveal()


def test_a_chosen_variable_reaches_the_process_of_a_draft(admin: Any, actor: Actor, variable: Credential) -> None:
    found = launched(create_draft(actor, admin, over_stdio(), None, [variable])).environment["API_KEY"]
    assert isinstance(found, Secret)
    assert found.reveal() == TOKEN


VERBS: dict[str, Callable[[Actor, Any, Credential], object]] = {
    "test": lambda actor, user, token: create_draft(actor, user, over_http(url=ELSEWHERE), None, [token]),
    "register": lambda actor, user, token: registering.register(actor, user, over_http(url=ELSEWHERE), chosen=[token]),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_credential_of_another_address_is_refused_with_words(
    verb: str, admin: Any, actor: Actor, token: Credential
) -> None:
    with pytest.raises(ValidationError, match="never sent anywhere else") as refused:
        VERBS[verb](actor, admin, token)
    assert list(refused.value.message_dict) == ["credentials"]
    assert not ServerDraft.objects.exists()
    assert not Server.objects.exists()


def test_two_that_set_one_header_are_refused(admin: Any, actor: Actor, add: Callable[..., Credential]) -> None:
    with pytest.raises(ValidationError, match="already sends the authorization header"):
        create_draft(actor, admin, over_http(url=URL), None, [add("One"), add("Two")])
    with pytest.raises(ValidationError, match="already sends the authorization header"):
        create_draft(actor, admin, over_http(url=URL, values=[header()]), None, [add("Three")])


def test_who_may_not_manage_credentials_chooses_none(actor: Actor, token: Credential) -> None:
    anna = person("anna", "view_server", "add_server", "view_credential")
    assert vault.offers(anna) == []
    assert vault.chosen(anna, [str(token.uid)]) == []
    with pytest.raises(PermissionDenied):
        create_draft(Actor.of_user(anna), anna, over_http(url=URL), None, [token])


def test_a_credential_that_is_deleted_before_the_test_is_said_to_be_gone(
    admin: Any, actor: Actor, token: Credential
) -> None:
    draft = create_draft(actor, admin, over_http(url=URL), None, [token])
    token.delete()
    with pytest.raises(NotLaunchable, match="has been deleted"):
        launched(draft)


def test_the_binding_is_judged_again_by_the_worker(admin: Any, actor: Actor, token: Credential) -> None:
    draft = create_draft(actor, admin, over_http(url=URL), None, [token])
    Credential.objects.update(host="evil.example")
    with pytest.raises(NotLaunchable, match="different address"):
        launched(draft)


def test_an_edit_is_tried_with_the_servers_own_credentials_at_its_own_place_only(
    admin: Any, actor: Actor, server: Server
) -> None:
    assert sent(create_draft(actor, admin, over_http(url=f"{URL}/v2"), server)) == f"Bearer {TOKEN}"
    for url in (ELSEWHERE, "http://mcp.example.com/mcp", "https://mcp.example.com:8443/mcp"):
        assert launched(create_draft(actor, admin, over_http(url=url), server)).headers == {}


def test_a_sign_in_is_used_for_the_very_address_alone(admin: Any, actor: Actor, server: Server) -> None:
    assert vault_of(create_draft(actor, admin, over_http(url=URL), server)).signed_in
    assert not vault_of(create_draft(actor, admin, over_http(url=f"{URL}/v2"), server)).signed_in


def test_a_server_is_registered_with_what_was_chosen(admin: Any, actor: Actor, token: Credential) -> None:
    made = registering.register(actor, admin, over_http(url=URL), chosen=[token])
    assert needed_credentials.used_by(made) == [token]
    assert AuditEvent.objects.filter(action=AuditAction.CREDENTIAL_ATTACH, subject=token.name).count() == 1


def test_a_copy_keeps_the_credentials_but_not_the_sign_in(admin: Any, actor: Actor, server: Server) -> None:
    grant = grant_for(server)
    copy = registering.clone(actor, admin, server)
    assert [credential.name for credential in needed_credentials.used_by(copy)] == ["Orders key"]
    assert needed_credentials.left_out(server, copy) == [grant.name]
    assert not copy.values.exists()


def test_a_copy_by_who_may_not_manage_credentials_says_value_needed(server: Server) -> None:
    anna = person("anna", "view_server", "add_server", "change_server")
    copy = registering.clone(Actor.of_user(anna), anna, server)
    assert needed_credentials.used_by(copy) == []
    assert needed_credentials.left_out(server, copy) == ["Orders key"]
    row = copy.values.get()
    assert (row.name, row.secret, row.sealed) == ("Authorization", True, None)


def test_a_row_that_stands_for_the_credential_already_is_not_made_twice(
    admin: Any, actor: Actor, server: Server
) -> None:
    registering.change(actor, admin, server, over_http(url=URL, values=[header()]), 1)
    anna = person("anna", "view_server", "add_server", "change_server")
    copy = registering.clone(Actor.of_user(anna), anna, Server.objects.get())
    assert [(row.name, row.sealed is None) for row in copy.values.all()] == [("Authorization", False)]


def test_a_credential_that_the_server_lost_by_moving_is_not_copied(admin: Any, actor: Actor, server: Server) -> None:
    registering.change(actor, admin, server, over_http(url=ELSEWHERE), 1)
    copy = registering.clone(actor, admin, Server.objects.get())
    assert needed_credentials.used_by(copy) == []
