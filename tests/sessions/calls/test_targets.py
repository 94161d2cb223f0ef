"""A call uses the caller's own session if the caller has a personal identity that applies, and never another
person's."""

import sqlite3
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from servers.audit.record import Actor
from servers.definitions.versions import store_listing
from servers.enums import DefinitionKind, IdentityKind, SignsInAs, TransportKind
from servers.models import Identity, Server
from sessions.calls.arguments import Rejected
from sessions.calls.operations import operation_of
from sessions.calls.targets import Target, find_target
from sessions.connections import commands
from sessions.mcp.core.methods import TOOLS_CALL
from sessions.models import McpSession
from tests.servers.conftest import on_postgres, person  # noqa: F401  a fixture


def listed(server: Server, session: McpSession) -> McpSession:
    items = [{"name": "whoami", "description": session.identity.name, "inputSchema": {}}]
    store_listing(server, DefinitionKind.TOOL, items, timezone.now(), session.identity)
    return session


def own_of(user: Any, server: Server) -> McpSession:
    identity = Identity.objects.create(server=server, user=user, kind=IdentityKind.PERSONAL, name=user.username)
    return listed(server, commands.session_of(identity, server))


def aimed(user: Any, server: Server) -> Target:
    return find_target(user, Actor.of_user(user), server.uid, operation_of(TOOLS_CALL), "whoami")


def whose(user: Any, server: Server) -> tuple[str, bool, str]:
    try:
        target = aimed(user, server)
    except Rejected:
        return ("nobody", False, "")
    return (target.identity_name, target.personal, str(target.definition["description"]))


def everybody_is_told_apart() -> None:
    server = Server.objects.create(slug="who", name="Who", transport=TransportKind.STDIO, command="true")
    listed(server, commands.shared_session(server))
    ada, bea, carl = (person(name, "view_server", "call_tool") for name in ("ada", "bea", "carl"))
    own_of(ada, server)
    own_of(bea, server)
    shared, nobody = ("shared", False, "shared"), ("nobody", False, "")
    own = [(name, True, name) for name in ("ada", "bea")]
    expected = {
        SignsInAs.SHARED: [shared, shared, shared],
        SignsInAs.EITHER: [*own, shared],
        SignsInAs.PERSONAL: [*own, nobody],
    }
    for policy, found in expected.items():
        Server.objects.update(signs_in_as=policy)
        assert [whose(user, server) for user in (ada, bea, carl)] == found
    Identity.objects.filter(user=ada).update(ended_at=timezone.now())
    Server.objects.update(signs_in_as=SignsInAs.EITHER)
    assert [whose(user, server) for user in (ada, bea)] == [shared, own[1]]


@pytest.mark.django_db
def test_a_call_goes_through_the_session_of_its_callers_identity() -> None:
    everybody_is_told_apart()


@pytest.mark.usefixtures("on_postgres")
def test_so_it_does_on_postgresql(django_db_blocker: Any) -> None:
    with django_db_blocker.unblock():
        everybody_is_told_apart()


@pytest.mark.django_db
def test_an_own_identity_without_a_session_is_not_served_by_the_shared_one(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    fields = {"transport": TransportKind.STDIO, "command": "true", "signs_in_as": SignsInAs.EITHER}
    server = Server.objects.create(slug="who", name="Who", **fields)
    listed(server, commands.shared_session(server))
    ada = person("ada", "view_server", "call_tool")
    Identity.objects.create(server=server, user=ada, kind=IdentityKind.PERSONAL, name="ada")
    assert whose(ada, server) == ("nobody", False, "")
    session = McpSession.objects.get(identity__user=ada)
    listed(server, session)
    with django_assert_num_queries(1):
        assert aimed(ada, server).session_id == session.pk


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "sqlite", reason="SQLite compiles statements itself")
def test_the_read_of_a_target_is_not_compiled_again_for_each_user() -> None:
    server = Server.objects.create(slug="who", name="Who", transport=TransportKind.STDIO, command="true")
    listed(server, commands.shared_session(server))
    ada, bea = (person(name, "view_server", "call_tool") for name in ("ada", "bea"))
    own_of(ada, server)
    connection.ensure_connection()
    steps: list[int] = []

    def compiling(action: int, *_names: Any) -> int:
        steps.append(action)
        return sqlite3.SQLITE_OK

    connection.connection.set_authorizer(compiling)
    try:
        aimed(ada, server)
        assert steps  # the authorizer is asked while a statement is compiled
        steps.clear()
        aimed(bea, server)
        assert not steps
    finally:
        connection.connection.set_authorizer(None)
