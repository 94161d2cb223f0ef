"""Sign-ins, accounts and permissions produce audit events with the request that caused them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import authenticate, get_user_model, login, logout
from django.contrib.auth.models import AnonymousUser, Group, Permission
from django.http import HttpRequest
from django.test import Client, RequestFactory

from servers.audit.acts import audited
from servers.audit.command_line import at_command_line
from servers.audit.record import OPERATOR, SYSTEM, Actor, current_request
from servers.enums import AuditAction, AuditOutcome
from servers.models import AuditEvent
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


def newest() -> tuple[Any, dict[str, Any]]:
    event = AuditEvent.objects.order_by("-seq")[0]
    return event, json.loads(event.body)["details"]


@pytest.fixture
def request_of_ada(admin: Any, rf: RequestFactory) -> Iterator[HttpRequest]:
    """Set the current request, as the middleware does during a request."""
    request = rf.post("/", REMOTE_ADDR="192.0.2.7")
    request.user, request.request_id = admin, "request-0001"
    token = current_request.set(request)
    yield request
    current_request.reset(token)


def test_outside_of_a_request_the_operator_acts_at_the_command_line_and_else_the_product() -> None:
    assert Actor.current() == SYSTEM
    token = at_command_line.set(True)
    try:
        assert Actor.current() == OPERATOR
        person("vera")
    finally:
        at_command_line.reset(token)
    assert newest()[0].way == "command"


def test_a_signal_inside_of_an_act_takes_its_actor(request_of_ada: HttpRequest) -> None:
    with audited(OPERATOR):
        person("vera")
    event, _ = newest()
    assert (event.actor_name, event.way, event.ip) == ("mcpadmin", "command", "")
    person("max")
    assert newest()[0].actor_name == "ada"


def with_session(rf: RequestFactory) -> HttpRequest:
    request = rf.post("/accounts/login/", REMOTE_ADDR="192.0.2.7")
    request.session, request.user = Client().session, AnonymousUser()
    return request


def test_signing_in_and_out_names_user_and_address(rf: RequestFactory) -> None:
    request, vera = with_session(rf), person("vera")
    login(request, vera, backend="mcpadmin.accounts.Backend")
    event, _ = newest()
    assert (event.action, event.actor_name, event.ip) == (AuditAction.SIGN_IN, "vera", "192.0.2.7")
    request.user = vera
    logout(request)
    assert newest()[0].action == AuditAction.SIGN_OUT


@pytest.mark.parametrize("typed", ["vera", "Vera"])
def test_a_failed_sign_in_names_an_account_that_exists(rf: RequestFactory, typed: str) -> None:
    person("vera")
    assert authenticate(with_session(rf), username=typed, password="wrong") is None
    event, _ = newest()
    assert (event.action, event.outcome) == (AuditAction.SIGN_IN_FAILED, AuditOutcome.FAILED)
    assert (event.subject, event.actor_name, event.ip) == ("vera", "", "192.0.2.7")


def test_a_password_typed_into_the_name_field_is_not_kept(rf: RequestFactory) -> None:
    assert authenticate(with_session(rf), username="my-secret-canary", password="x") is None
    assert newest()[0].subject == "(unknown user)"
    assert "canary" not in newest()[0].body


def test_a_user_is_created_renamed_and_deleted_by_someone(request_of_ada: HttpRequest) -> None:
    user = get_user_model().objects.create_user("zoe", password=PASSWORD)
    event, _ = newest()
    assert (event.action, event.subject, event.actor_name, event.request_id) == (
        AuditAction.USER_CREATE, "zoe", "ada", "request-0001",
    )  # fmt: skip
    user.email = "zoe@example.com"
    user.save()
    assert newest()[1] == {"changes": {"email": {"before": "", "after": "zoe@example.com"}}}
    user.delete()
    assert newest()[0].action == AuditAction.USER_DELETE


def test_a_new_password_is_an_event_without_any_part_of_it(request_of_ada: HttpRequest) -> None:
    user = person("zoe")
    user.set_password("canary-of-a-password")
    user.save()
    event, details = newest()
    assert (event.action, event.subject, event.actor_name) == (AuditAction.PASSWORD_CHANGE, "zoe", "ada")
    assert details == {}
    assert "canary" not in event.body


def test_the_last_sign_in_alone_is_no_change() -> None:
    user = person("zoe")
    count = AuditEvent.objects.count()
    user.save(update_fields=["last_login"])
    assert AuditEvent.objects.count() == count


def test_disabling_and_enabling_are_acts_of_their_own(request_of_ada: HttpRequest) -> None:
    user = person("zoe")
    for active, action in ((False, AuditAction.USER_DISABLE), (True, AuditAction.USER_ENABLE)):
        user.is_active = active
        user.save(update_fields=["is_active"])
        event, details = newest()
        assert (event.action, event.subject, event.actor_name, details) == (action, "zoe", "ada", {})


@pytest.mark.parametrize("flag", ["is_superuser", "is_staff"])
def test_a_flag_that_gives_permissions_is_written_before_and_after(flag: str, request_of_ada: HttpRequest) -> None:
    user = person("zoe")
    before = getattr(user, flag)
    setattr(user, flag, not before)
    user.save(update_fields=[flag])
    event, details = newest()
    assert (event.action, event.actor_name) == (AuditAction.PERMISSIONS_CHANGE, "ada")
    assert details == {"changes": {flag: {"before": before, "after": not before}}}


def test_permissions_and_groups_given_and_taken_are_named(request_of_ada: HttpRequest) -> None:
    user, group = person("zoe"), Group.objects.create(name="ops")
    permission = Permission.objects.get(codename="manage_stdio")
    user.user_permissions.add(permission)
    assert (newest()[0].subject, newest()[1]) == ("zoe", {"added": ["servers.manage_stdio"]})
    user.user_permissions.remove(permission)
    assert newest()[1] == {"removed": ["servers.manage_stdio"]}
    group.permissions.add(permission)
    assert (newest()[0].subject, newest()[1]) == ("group ops", {"added": ["servers.manage_stdio"]})
    user.groups.add(group)
    assert (newest()[0].subject, newest()[1]) == ("zoe", {"added": ["group ops"]})
    group.user_set.clear()
    assert (newest()[0].subject, newest()[1]) == ("group ops", {"cleared": ["all"]})


def test_a_renamed_group_keeps_its_old_name_in_the_log(request_of_ada: HttpRequest) -> None:
    group = Group.objects.create(name="Readers")
    group.name = "Night shift"
    group.save(update_fields=["name"])
    event, details = newest()
    assert (event.action, event.subject) == (AuditAction.PERMISSIONS_CHANGE, "group Night shift")
    assert details == {"group": "renamed", "changes": {"name": {"before": "Readers", "after": "Night shift"}}}
    group.save()
    assert newest()[0].seq == event.seq


def test_what_a_deleted_group_and_a_deleted_user_held_is_named(request_of_ada: HttpRequest) -> None:
    user, group = person("zoe", "manage_stdio"), Group.objects.create(name="ops")
    group.permissions.add(Permission.objects.get(codename="call_tool"))
    user.groups.add(group)
    group.delete()
    assert newest()[1] == {"group": "deleted", "permissions": ["servers.call_tool"], "members": ["zoe"]}
    user.groups.add(Group.objects.create(name="readers"))
    user.delete()
    assert newest()[1] == {
        "is_active": True, "groups": ["group readers"], "permissions": ["servers.manage_stdio"],
    }  # fmt: skip


def test_outside_of_a_request_the_product_itself_acts() -> None:
    person("zoe")
    assert newest()[0].actor_name == "mcpadmin"


def test_an_anonymous_visitor_has_no_name(rf: RequestFactory) -> None:
    assert Actor.of(with_session(rf)) == Actor(None, "", "192.0.2.7", "")
