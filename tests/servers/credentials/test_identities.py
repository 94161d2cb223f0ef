"""A personal identity starts with the user's credential, serves only that user, and leaves no value when it ends."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from servers import access, limits
from servers.access import Denied
from servers.audit.record import Actor
from servers.audit.verify import verify
from servers.credentials import board as credential_board
from servers.credentials import grants, identities, vault
from servers.credentials.binding import place_of
from servers.credentials.kinds import Parts
from servers.enums import AuditAction, CredentialKind, SignsInAs
from servers.models import AuditEvent, Credential, Identity, Server
from servers.registration import registering
from servers.registration.exporting import export
from servers.registration.resolved_values import launch_values
from servers.secret import Secret
from tests.servers.cast import header, over_http
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
URL = "https://mcp.example.com/mcp"
SHARED, OWN = "canary-shared-3b1d", "canary-own-77aa"


def bearer(token: str) -> Parts:
    return Parts(CredentialKind.BEARER, {}, {"token": Secret(token)})


@pytest.fixture
def bea(db: None) -> Any:
    return person("bea", "view_server", "call_tool")


@pytest.fixture
def server(admin: Any, actor: Actor) -> Server:
    data = over_http(
        url=URL, signs_in_as=SignsInAs.EITHER, values=[header("X-Gate", SHARED), header("X-Team", "ops", secret=False)]
    )
    made = registering.register(actor, admin, data)
    vault.attach(actor, admin, made, vault.create(actor, admin, "Shared", bearer(SHARED), URL))
    return made


def own(user: Any, server: Server, token: str = OWN) -> Identity:
    vault.create_own(Actor.of_user(user), user, server, bearer(token))
    return access.own_identities(user).get(server=server)


def sent(server: Server, identity: Identity | None = None) -> dict[str, str]:
    headers = launch_values(server, identity).headers
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in headers.items()}


def last(action: AuditAction) -> AuditEvent:
    return AuditEvent.objects.filter(action=action).order_by("-seq")[0]


def test_no_one_is_sent_what_belongs_to_another_identity(server: Server, bea: Any) -> None:
    mine, theirs = own(bea, server), own(person("carl", "view_server", "call_tool"), server, "canary-carl")
    assert sent(server, mine) == {"X-Team": "ops", "Authorization": f"Bearer {OWN}"}
    assert sent(server, theirs) == {"X-Team": "ops", "Authorization": "Bearer canary-carl"}
    everybody = {"X-Team": "ops", "X-Gate": SHARED, "Authorization": f"Bearer {SHARED}"}
    assert sent(server) == everybody
    assert sent(server, server.identities.get(kind="shared")) == everybody


def test_what_a_reference_stands_for_is_never_sent_for_someone_alone(
    server: Server, bea: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_GATE", "of-the-operator")
    server.values.create(kind="header", name="X-Operator", plain="${MCP_GATE}")
    assert "X-Operator" not in sent(server, own(bea, server))
    assert sent(server)["X-Operator"] == "of-the-operator"


def test_the_policy_and_the_own_identity_say_who_someone_is(server: Server, bea: Any, admin: Any) -> None:
    mine = own(bea, server)
    expected = {SignsInAs.SHARED: (None, None), SignsInAs.EITHER: (mine.pk, None), SignsInAs.PERSONAL: (mine.pk, 0)}
    for policy, keys in expected.items():
        server.signs_in_as = policy
        server.save()
        assert (access.identity_key(bea, server), access.identity_key(admin, server)) == keys
        found = [access.identities_of(user).filter(server=server).first() for user in (bea, admin)]
        shared = server.identities.get(kind="shared")
        assert found == [shared if key is None else mine if key else None for key in keys]


def test_a_server_of_one_identity_takes_no_own_credential(server: Server, bea: Any) -> None:
    Server.objects.update(signs_in_as=SignsInAs.SHARED)
    with pytest.raises(ValidationError, match="one shared identity"):
        own(bea, server)
    assert not Credential.objects.filter(owner=bea).exists()


def test_an_own_identity_needs_permission_to_call(server: Server, visitor: Any) -> None:
    with pytest.raises(Denied):
        own(visitor, server)
    assert last(AuditAction.PERMISSION_DENY).actor_name == "vera"
    assert not Identity.objects.filter(user=visitor).exists()


def test_a_user_has_so_many_own_credentials_at_a_server_and_no_more(
    server: Server, bea: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(limits.LIMITS, "own_credentials", replace(limits.LIMITS["own_credentials"], fixed=1))
    own(bea, server)
    with pytest.raises(ValidationError) as caught:
        own(bea, server)
    assert limits.stated("own_credentials") in caught.value.messages[0]


def test_a_server_has_so_many_own_identities_and_no_more(server: Server, bea: Any, settings: Any) -> None:
    settings.PERSONAL_SESSIONS = 1
    own(bea, server)
    with pytest.raises(
        ValidationError,
        match="Limit: 1 personal identities per server",
    ):
        own(person("carl", "view_server", "call_tool"), server)
    identities.end(Actor.of_user(bea), bea, server)
    own(person("dora", "view_server", "call_tool"), server)


def test_an_own_credential_is_seen_and_deleted_by_admins_and_never_used(
    server: Server, bea: Any, admin: Any, actor: Actor
) -> None:
    own(bea, server)
    row = next(row for row in credential_board.board(Server.objects.all()) if row.credential and row.credential.owner)
    assert (row.name, row.kind, str(row.credential.owner)) == ("Orders (bea)", "Bearer token", "bea")
    assert row.fingerprint
    assert row.credential not in vault.attachable(server)
    with pytest.raises(ValidationError, match="is a personal credential"):
        vault.attach(actor, admin, server, row.credential)
    with pytest.raises(ValidationError, match="is a personal credential"):
        vault.replace(actor, admin, row.credential, bearer("canary-of-the-admin"))
    with pytest.raises(ValidationError, match="have this credential"):
        vault.delete_own(actor, admin, server, row.credential)
    vault.delete(actor, admin, row.credential)
    assert sent(server, Identity.objects.get(user=bea)) == {"X-Team": "ops"}


def test_a_sign_in_of_someone_is_theirs(server: Server, bea: Any) -> None:
    mine = own(bea, server)
    shown = {"issuer": "https://as.example", "generation": 1, "signed_in": True, "expires_at": None}
    grants.save(mine.pk, place_of(server), Secret("{}"), shown | {"scopes": [], "client": "c"})
    assert Credential.objects.get(kind=CredentialKind.OAUTH).owner == bea
    assert grants.load(server.identities.get(kind="shared").pk, place_of(server)) is None


def test_going_back_erases_the_own_credentials_and_only_those(server: Server, bea: Any) -> None:
    mine, theirs = own(bea, server), own(person("carl", "view_server", "call_tool"), server)
    assert identities.end(Actor.of_user(bea), bea, server)
    assert not identities.end(Actor.of_user(bea), bea, server)
    assert access.identity_key(bea, server) is None
    assert list(Credential.objects.filter(owner__isnull=False).values_list("owner__username", flat=True)) == ["carl"]
    assert Identity.objects.get(pk=theirs.pk).ended_at is None
    told = last(AuditAction.IDENTITY_END)
    assert (told.actor_name, told.identity_name) == ("bea", "bea")
    details = {"identity": str(mine.uid), "credentials": ["Orders (bea)"], "subscriptions": 0}
    assert json.loads(told.body)["details"] == details
    assert own(bea, server).pk == mine.pk  # with its history
    assert verify().ok


def test_two_of_one_header_are_refused_for_an_own_identity_too(server: Server, bea: Any) -> None:
    own(bea, server)
    with pytest.raises(ValidationError, match=r"already sends the .* header"):
        own(bea, server)
    team = Parts(CredentialKind.HEADER, {"header": "X-Team"}, {"value": Secret("x")})
    with pytest.raises(ValidationError, match=r"already sends the .* header"):
        vault.create_own(Actor.of_user(bea), bea, server, team)


def test_copies_and_exports_know_of_the_shared_identity_only(
    server: Server, bea: Any, admin: Any, actor: Actor
) -> None:
    own(bea, server)
    text = export([server])
    assert re.search(r"\bbea\b", text) is None  # whole words: uids are hexadecimal
    assert OWN not in text
    assert json.loads(text)["mcpServers"]["Orders"]["mcpadmin"]["signs_in_as"] == "either"
    copy = registering.clone(actor, admin, server)
    assert (copy.signs_in_as, copy.identities.count()) == (SignsInAs.EITHER, 1)


def test_a_server_that_moves_blanks_own_credentials_too(server: Server, bea: Any, admin: Any, actor: Actor) -> None:
    mine = own(bea, server)
    data = replace(registering.Registration.of_server(server), url="https://elsewhere.example/mcp", values=[])
    registering.change(actor, admin, server, data, server.version)
    assert mine.uses.get().blanked_at is not None
