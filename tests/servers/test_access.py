"""Access checks decide which rows and permissions each user gets; nothing else leads from a request to a row."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.test import RequestFactory

from servers import access
from servers.models import AuditEvent, Server
from servers.views.denied import permission_denied
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
PERMISSIONS = [
    "add",
    "change",
    "delete",
    "call_tool",
    "view_payload",
    "view_auditevent",
    "manage_stdio",
    "verify_chain",
]


@pytest.fixture
def server() -> Server:
    return Server.objects.create(slug="orders", name="Orders", transport="stdio")


def test_an_administrator_passes_everywhere(admin: Any, server: Server) -> None:
    assert all(access.permissions(admin).values())
    for permission in PERMISSIONS:
        assert access.server_for(admin, "orders", permission) == server


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_a_visitor_sees_the_row_and_is_refused_each_permission_by_name(
    permission: str, visitor: Any, server: Server
) -> None:
    assert access.server_for(visitor, "orders") == server
    with pytest.raises(access.Denied) as denied:
        access.server_for(visitor, "orders", permission)
    assert isinstance(denied.value, PermissionDenied)
    assert denied.value.server == server
    needed = access.NEEDS.get(denied.value.permission, ())
    assert access.may(person("carl", denied.value.permission, *needed), permission)


@pytest.mark.parametrize("permission", ["view", *PERMISSIONS])
def test_who_may_not_see_servers_cannot_tell_a_real_one_from_none(permission: str, server: Server) -> None:
    stranger = person("stan", "change_server", "delete_server", "call_tool")
    for slug in ("orders", "nothing"):
        with pytest.raises(Http404):
            access.server_for(stranger, slug, permission)
    with pytest.raises(Http404):
        access.server_by_uid(stranger, server.uid)
    assert not access.visible_servers(stranger).exists()


def test_no_one_signed_in_and_no_one_disabled_has_a_permission(admin: Any) -> None:
    admin.is_active = False
    for user in (AnonymousUser(), admin):
        assert not any(access.permissions(user).values())


@pytest.mark.parametrize("permission", access.NEEDS)
def test_a_permission_has_no_effect_without_those_that_it_needs_and_the_refusal_names_one(permission: str) -> None:
    holder = person("hera", permission)
    assert not access.may(holder, permission)
    assert not access.permissions(holder)[permission]
    with pytest.raises(access.Denied) as denied:
        access.require(holder, permission)
    assert denied.value.permission in access.NEEDS[permission]
    assert access.may(person("carl", permission, *access.NEEDS[permission]), permission)


def test_an_unknown_permission_is_an_error_and_not_a_refusal(admin: Any) -> None:
    with pytest.raises(ValueError, match="no such permission"):
        access.may(admin, "veiw")


def test_a_row_of_another_uid_is_not_found(admin: Any, server: Server) -> None:
    assert access.server_by_uid(admin, server.uid) == server
    with pytest.raises(Http404):
        access.server_by_uid(admin, uuid4())


def test_the_log_is_read_with_the_permission_only(admin: Any, visitor: Any) -> None:
    access.audit_events(admin)
    with pytest.raises(access.Denied):
        access.audit_events(visitor)


def test_the_answer_403_is_written_down_once(visitor: Any, server: Server, rf: RequestFactory) -> None:
    request = rf.get("/servers/orders/settings/", REMOTE_ADDR="192.0.2.8")
    request.user = visitor
    denied = access.Denied("change_server", server)
    before = AuditEvent.objects.count()
    for _ in range(2):
        assert permission_denied(request, denied).status_code == 403
    event = AuditEvent.objects.order_by("-seq")[0]
    assert AuditEvent.objects.count() == before + 1
    assert (event.action, event.actor_name, event.ip) == ("account:permission:deny", "vera", "192.0.2.8")
    assert (event.server_uid, event.subject) == (server.uid, "Orders")
