"""Another admin deletes the server in the moment in which a form of it is sent: not found, and never an error of ours."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers import access
from servers.audit import writer as writing
from servers.audit.record import Actor
from servers.definitions.versions import store_listing
from servers.enums import AuditAction, DefinitionKind
from servers.models import AuditEvent, Server
from sessions.calls.arguments import SubmittedArguments
from sessions.models import McpSession
from sessions.saved_calls import saving
from sessions.views import bulk
from tests.sessions.host.make import make_session
from tests.test_routes import routes

pytestmark = pytest.mark.django_db(transaction=True)
OF_SERVERS = [route for route in routes() if route.written.startswith("/servers/<slug:slug>/")]
#: what the view needs to come as far as the row
SENT = {
    "servers:subscribe": {"uri": "note://one"},
    "servers:log_level": {"level": "info"},
    "servers:roots": {"roots": "file:///tmp/a", "version": "1"},
    "servers:legacy": {"confirmed": "1"},
    "servers:add_agent_rule": {"effect": "deny", "kind": "tool", "pattern": "echo"},
    "servers:change_agent_policy": {"otherwise": "ask", "own_approval": "never"},
    "servers:settings": {"version": "1"},
}
NAMED = {"servers:call": "?tool=echo", "servers:tool_form": "?tool=echo", "servers:definition": "?key=echo"}


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def ada(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("ada"))
    return client


def a_server() -> McpSession:
    session = make_session("orders")
    listed = [{"name": "echo", "inputSchema": {"type": "object"}}]
    store_listing(session.server, DefinitionKind.TOOL, listed, timezone.now())
    return session


@pytest.mark.parametrize("method", ["get", "post"])
def test_no_address_of_a_server_fails_with_it(
    method: str, ada: Client, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    found = access.server_for

    def found_and_deleted(*given: Any, **more: Any) -> Server:
        server = found(*given, **more)
        Server.objects.filter(pk=server.pk).delete()
        return server

    monkeypatch.setattr(access, "server_for", found_and_deleted)
    for route in OF_SERVERS:
        with subtests.test(str(route)):
            if not Server.objects.exists():
                a_server()
            answer = getattr(ada, method)(route.path + NAMED.get(route.name, ""), SENT.get(route.name, {}))
            assert answer.status_code < 500 or answer.status_code == 503, route
            assert answer.status_code != 404 or b"matching query" not in answer.content, route


def test_many_servers_of_which_one_is_deleted_meanwhile(ada: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, kept = a_server().server, make_session("notes").server
    chosen = bulk._chosen

    def chosen_and_deleted(request: Any) -> list[Server]:
        servers = chosen(request)
        Server.objects.filter(pk=gone.pk).delete()
        return servers

    monkeypatch.setattr(bulk, "_chosen", chosen_and_deleted)
    fields = {"action": "disable", "server": [str(gone.uid), str(kept.uid)], "confirmed": "1", "typed": ""}
    page = ada.post("/server-actions/", fields, follow=True).content.decode()
    assert "It has been deleted." in page
    assert "1 server disabled." in page
    kept.refresh_from_db()
    assert not kept.enabled


def test_a_call_that_is_saved_while_its_server_is_deleted_is_not_said_to_have_a_taken_name(
    ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, redacted = a_server().server, saving.redaction.redacted

    def deleted(*given: Any) -> Any:
        Server.objects.filter(pk=server.pk).delete()
        return redacted(*given)

    monkeypatch.setattr(saving.redaction, "redacted", deleted)
    user = get_user_model().objects.get()
    with pytest.raises(saving.Unsaved, match="The server has been deleted"):
        saving.save_form(
            Actor.of_user(user), user, server, "tools/call", "echo", SubmittedArguments(value={}), "Greet", shared=False
        )
    assert not AuditEvent.objects.filter(action=AuditAction.SAVED_CALL_CREATE).exists()
