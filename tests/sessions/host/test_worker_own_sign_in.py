"""When a person signs in for themselves at a shared server, only that person uses the grant and its session."""

import pytest
from django.test import Client

from servers import access
from servers.credentials import identities
from servers.enums import AuthorizationState, IdentityKind, SignsInAs
from servers.models import AuditEvent, Credential, Server, ServerAuthorization
from sessions.calls import placing
from sessions.calls.arguments import SubmittedArguments
from sessions.enums import CallState, SessionCondition, SessionState
from sessions.models import Call, McpSession
from tests.servers.conftest import person
from tests.sessions.host.harness import WorkerProcess, eventually
from tests.sessions.host.test_worker_sign_in import (
    Protected,
    ada,  # noqa: F401  a fixture
    brought_back,
    protected,  # noqa: F401  a fixture
    registered,
    session_in,
)

pytestmark = [pytest.mark.integration, pytest.mark.deadline(300)]


def test_a_grant_of_somebodys_own_is_never_used_for_everybody(
    ada: Client,  # noqa: F811  a fixture
    shared_worker: WorkerProcess,
    protected: Protected,  # noqa: F811  a fixture
) -> None:
    server = registered(protected.url)
    Server.objects.update(signs_in_as=SignsInAs.EITHER)
    session_in(SessionCondition.NEEDS_AUTH, SessionState.DISCONNECTED, "the shared session did not wait")
    bea = person("bea", "view_server", "call_tool")
    client = Client()
    client.force_login(bea)

    page = client.post(f"/servers/{server.slug}/identity/sign-in/").url
    uid = page.split("/")[-2]
    eventually(
        ServerAuthorization.objects.filter(uid=uid, state=AuthorizationState.READY).first, 30, "nobody prepared it"
    )
    assert ada.get(page).status_code == 404, "the journey is its traveller's"
    parameters = brought_back(client, page)
    assert client.get("/sign-in/callback/", parameters).url == page
    eventually(ServerAuthorization.objects.filter(uid=uid, state=AuthorizationState.DONE).first, 30)

    own = McpSession.objects.get(identity__user=bea)
    eventually(McpSession.objects.filter(pk=own.pk, state=SessionState.READY).first, 30)
    shared = McpSession.objects.get(identity__kind=IdentityKind.SHARED)
    assert (shared.state, shared.condition) == (SessionState.DISCONNECTED, SessionCondition.NEEDS_AUTH)
    grant = Credential.objects.get()
    assert (grant.owner, grant.uses.get().identity_id) == (bea, own.identity_id)

    eventually(lambda: own.identity.definitions.filter(key="greet").exists(), 30)
    actor = identities.Actor.of_user(bea)
    call = placing.place(actor, bea, server, "greet", SubmittedArguments(value={"name": "Bea"}, confirm="greet"))
    ended = eventually(Call.objects.filter(pk=call.pk, finished_at__isnull=False).first, 30)
    assert (ended.state, ended.identity_name, ended.personal) == (CallState.SUCCEEDED, "bea", True)
    assert protected.events("call") == 1
    told = AuditEvent.objects.filter(action__in=["server:credential:sign_in", "server:credential:signed_in"])
    assert set(told.values_list("actor_name", "identity_name")) == {("bea", "bea")}

    identities.end(actor, bea, server)
    assert not Credential.objects.exists()
    assert access.identity_key(bea, Server.objects.get()) is None
