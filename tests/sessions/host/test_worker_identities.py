"""People use one server with their own credentials, each through a session that no one else uses."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from servers.audit import payloads
from servers.audit.record import Actor
from servers.credentials import identities, vault
from servers.credentials.kinds import Parts
from servers.enums import AuditAction, CredentialKind, IdentityKind, SignsInAs, TransportKind
from servers.models import AuditEvent, Credential, Definition, Identity, Server
from servers.registration import registering
from servers.registration.registering import Registration
from servers.secret import Secret
from sessions.calls import placing
from sessions.calls.arguments import Rejected, SubmittedArguments
from sessions.connections import commands
from sessions.enums import CallState, Desired, SessionState
from sessions.models import Call, LogLine, McpSession
from tests.sessions.host.harness import WorkerProcess, eventually
from tests.sessions.host.whoami_server import Whoami

pytestmark = [pytest.mark.integration, pytest.mark.deadline(300)]


@pytest.fixture
def peer(shared_worker: WorkerProcess) -> Iterator[Whoami]:
    server = Whoami()
    yield server
    server.stop()


def person(name: str, *permissions: str) -> Any:
    user = get_user_model().objects.create_user(name)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_server", "call_tool", *permissions]))
    return user


def bearer(who: str) -> Parts:
    return Parts(CredentialKind.BEARER, {}, {"token": Secret(f"token-{who}")})


@pytest.fixture
def server(peer: Whoami) -> Server:
    """A server with a shared credential, used by everyone without a personal one."""
    admin = get_user_model().objects.create_superuser("root", password="correct horse battery")
    actor = Actor.of_user(admin)
    kind = TransportKind.STREAMABLE_HTTP
    data = Registration(name="Who", transport=kind, url=peer.url, signs_in_as=SignsInAs.EITHER)
    made = registering.register(actor, admin, data, enabled=False)
    shared = vault.create(actor, admin, "Shared", bearer("shared"), peer.url)
    vault.attach(actor, admin, made, shared)
    return registering.enable(actor, admin, made)


def policy(server: Server, signs_in_as: SignsInAs) -> None:
    admin = get_user_model().objects.get(username="root")
    current = Server.objects.get(pk=server.pk)
    data = Registration.of_server(current)
    changed = Registration(**{**vars(data), "signs_in_as": signs_in_as})
    registering.change(Actor.of_user(admin), admin, current, changed, current.version)


def own(user: Any, server: Server) -> Identity:
    vault.create_own(Actor.of_user(user), user, server, bearer(user.username))
    return Identity.objects.get(user=user)


def place(user: Any, server: Server, tool: str = "whoami") -> Call:
    return placing.place(Actor.of_user(user), user, server, tool, SubmittedArguments(value={}))


def answer(call: Call) -> str:
    eventually(lambda: Call.objects.filter(pk=call.pk, finished_at__isnull=False).exists(), 30)
    call = Call.objects.select_related("result").get(pk=call.pk)
    assert call.state == CallState.SUCCEEDED, (call.state, call.detail)
    text = payloads.read(call.result)
    assert text is not None
    return text.partition("You are ")[2].partition(".")[0]


def listed(identity: Identity | None, server: Server) -> set[str]:
    rows = Definition.objects.filter(server=server, removed_at=None)
    rows = rows.filter(identity=identity) if identity else rows.filter(identity__kind=IdentityKind.SHARED)
    return set(rows.values_list("key", flat=True))


def first_answer(user: Any, server: Server) -> str:
    """Open the personal session first, because the tool is unknown until it is listed there."""
    session = commands.session_for(user, Server.objects.get(pk=server.pk))
    commands.open_session(Actor.of_user(user), session)
    eventually(lambda: "whoami" in listed(session.identity, server), 30, "the own list was not read")
    return answer(place(user, server))


def test_each_has_an_own_answer_an_own_session_and_an_own_list(peer: Whoami, server: Server) -> None:
    ada, bea, carl = person("ada"), person("bea"), person("carl")
    hers, theirs = own(ada, server), own(bea, server)
    assert [first_answer(user, server) for user in (ada, bea, carl)] == ["ada", "bea", "shared"]
    for placed in [[place(user, server) for user in (ada, bea, carl)] for _ in range(10)]:
        assert [answer(call) for call in placed] == ["ada", "bea", "shared"]
    assert peer.opened == {"ada": 1, "bea": 1, "shared": 1}
    assert peer.strangers == []
    assert listed(hers, server) == {"whoami", "only_for_ada"}
    assert listed(theirs, server) == {"whoami", "only_for_bea"}
    assert listed(None, server) == {"whoami", "only_for_shared"}
    with pytest.raises(Rejected):
        place(bea, server, "only_for_ada")


def test_the_audit_names_caller_and_identity_of_every_step(peer: Whoami, server: Server) -> None:
    ada, carl = person("ada"), person("carl")
    own(ada, server)
    for user, identity in ((ada, "ada"), (carl, "shared")):
        first_answer(user, server)
        events = AuditEvent.objects.filter(call_uid=Call.objects.get(user=user).uid)
        names = set(events.values_list("actor_name", "identity_name"))
        assert (events.count(), names) == (3, {(user.username, identity)})
    begun = AuditEvent.objects.get(action=AuditAction.IDENTITY_CREATE)
    assert (begun.actor_name, begun.identity_name, begun.server_name) == ("ada", "ada", "Who")
    assert AuditEvent.objects.filter(action=AuditAction.SESSION_READY, identity_name="ada").exists()


def test_each_session_keeps_a_log_of_its_own(peer: Whoami, server: Server) -> None:
    ada = person("ada")
    identity = own(ada, server)
    first_answer(ada, server)
    eventually(LogLine.objects.filter(server=server, identity=identity, text__startswith="Session ready").exists)
    eventually(LogLine.objects.filter(server=server, identity=None, text__startswith="Session ready").exists)
    for wake in (identity, None):
        seqs = list(LogLine.objects.filter(identity=wake).order_by("seq").values_list("seq", flat=True))
        assert seqs == list(range(1, len(seqs) + 1))


def test_whoever_goes_back_speaks_as_everybody_again(peer: Whoami, server: Server) -> None:
    ada = person("ada")
    identity = own(ada, server)
    assert first_answer(ada, server) == "ada"
    assert identities.end(Actor.of_user(ada), ada, server)
    eventually(McpSession.objects.filter(identity=identity, state=SessionState.DISCONNECTED, owner=None).exists)
    assert first_answer(ada, server) == "shared"
    assert not Credential.objects.filter(owner=ada).exists()
    assert AuditEvent.objects.filter(action=AuditAction.IDENTITY_END, actor_name="ada", identity_name="ada").exists()
    assert (peer.opened["ada"], peer.opened["shared"]) == (1, 1)
    again = own(ada, server)
    assert (again.pk, first_answer(ada, server)) == (identity.pk, "ada")


def test_a_server_for_own_credentials_only_opens_no_shared_session(peer: Whoami, server: Server) -> None:
    ada, carl = person("ada"), person("carl")
    eventually(McpSession.objects.filter(state=SessionState.READY).exists)
    policy(server, SignsInAs.PERSONAL)
    shared = McpSession.objects.get(identity__kind=IdentityKind.SHARED)
    eventually(lambda: McpSession.objects.get(pk=shared.pk).owner_id is None)
    with pytest.raises(Rejected, match="requires your own credential"):
        place(carl, server)
    identity = own(ada, server)
    assert first_answer(ada, server) == "ada"
    policy(server, SignsInAs.SHARED)
    eventually(McpSession.objects.filter(identity=identity, owner=None, desired=Desired.CLOSED).exists)
    assert first_answer(ada, server) == "shared"


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "deactivated"])
def test_the_session_of_a_user_who_leaves_is_closed(peer: Whoami, server: Server, deleted: bool) -> None:
    ada = person("ada")
    identity = own(ada, server)
    first_answer(ada, server)
    uid = McpSession.objects.get(identity=identity).uid
    if deleted:
        ada.delete()
        assert not Credential.objects.filter(name__contains="ada").exists()
        assert Call.objects.get().personal
    else:
        ada.is_active = False
        ada.save()
    eventually(lambda: not McpSession.objects.filter(uid=uid).exclude(owner=None).exists())
    eventually(McpSession.objects.filter(identity__kind=IdentityKind.SHARED, state=SessionState.READY).exists)
