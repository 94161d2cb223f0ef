"""`manage.py users`: the way back in when no one can sign in."""

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from servers.accounts import catalog
from servers.accounts.reads import PAGE_SIZE
from servers.enums import AuditAction
from servers.models import AccountLink, AuditEvent, Server
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
NEW = "purple monkey dishwasher"


def run(*words: str) -> str:
    out = StringIO()
    call_command("users", *words, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_the_first_person_of_an_installation_where_no_one_can_sign_in_comes_back() -> None:
    cache.clear()
    root = get_user_model().objects.create_superuser("root", password="forgotten forgotten")
    link = run("reset", "root").strip()
    answer = Client().post(link[link.index("/link/") :], {"new_password1": NEW, "new_password2": NEW})
    assert answer.status_code == 302
    root.refresh_from_db()
    assert root.check_password(NEW)


def test_an_invitation_with_every_permission_works() -> None:
    cache.clear()
    link = run("invite", "--name", "Nina", "--superuser").strip()
    form = {"username": "nina", "password1": NEW, "password2": NEW}
    assert Client().post(link[link.index("/link/") :], form).status_code == 302
    assert get_user_model().objects.get(username="nina").is_superuser


def test_an_invitation_is_mailed_where_a_mail_server_is_named_and_only_to_an_address(
    settings: Any, mailoutbox: list[Any]
) -> None:
    run("invite", "--email", "nina@example.com")
    assert mailoutbox == []
    settings.EMAIL_URL = "smtp://mail.example"
    link = run("invite", "--email", "nina@example.com").strip()
    assert [(mail.to, link in mail.body) for mail in mailoutbox] == [(["nina@example.com"], True)]
    with pytest.raises(CommandError, match="'nina' is not an email address"):
        run("invite", "--email", "nina")


def test_the_list_has_every_open_invitation_and_no_other() -> None:
    run("invite", "--name", "Nina")
    for number in range(PAGE_SIZE):
        run("invite", "--name", f"Late {number}")
    AccountLink.objects.filter(name__startswith="Late").update(expires_at=timezone.now())
    run("invite", "--name", "Zoe")
    listed = run("list")
    assert "(Nina)" in listed
    assert "(Zoe)" in listed
    assert "Late" not in listed


def test_permissions_and_groups_are_granted_and_revoked_one_by_one() -> None:
    vera, group = person("vera", "view_server"), Group.objects.create(name="Night shift")
    run("grant", "vera", "--permission", "call_tool", "--group", "Night shift")
    assert catalog.own_permissions(vera) == {"view_server", "call_tool"}
    assert list(vera.groups.all()) == [group]
    out = run("revoke", "vera", "--permission", "view_server", "--group", "Night shift")
    assert "call_tool" in out
    assert catalog.own_permissions(vera) == {"call_tool"}
    assert not vera.groups.exists()
    run("grant", "vera", "--superuser")
    assert get_user_model().objects.get(pk=vera.pk).is_superuser
    assert catalog.own_permissions(vera) == {"call_tool"}


def test_people_are_listed_disabled_enabled_and_relieved_of_what_they_own() -> None:
    vera, heir = person("vera"), person("heir")
    server = Server.objects.create(slug="orders", name="Orders", transport="stdio", owner=vera)
    assert "Handed over: 1 servers" in run("handover", "vera", "--to", "heir")
    server.refresh_from_db()
    assert server.owner == heir
    assert "Disabled" in run("disable", "vera")
    assert "vera\tdisabled" in run("list")
    run("enable", "vera")
    assert "vera\tactive" in run("list")
    rows = AuditEvent.objects.exclude(action__contains="create")
    assert set(rows.values_list("actor_name", "way")) == {("mcpadmin", "command")}


def test_what_is_granted_at_the_command_line_is_recorded_as_such() -> None:
    person("vera")
    run("grant", "vera", "--superuser", "--permission", "call_tool")
    rows = AuditEvent.objects.filter(action=AuditAction.PERMISSIONS_CHANGE, actor_name="mcpadmin")
    assert set(rows.values_list("way", flat=True)) == {"command"}
    assert rows.count() == 2


def test_what_cannot_be_done_is_an_error_in_words() -> None:
    get_user_model().objects.create_superuser("root")
    for words, problem in (
        (("disable", "root"), "only active superuser"),
        (("revoke", "root", "--superuser"), "only active superuser"),
        (("disable", "zoe"), "There is no user zoe"),
        (("grant", "root", "--group", "zoe"), "There is no group zoe"),
    ):
        with pytest.raises(CommandError, match=problem):
            run(*words)
    assert "manage_users" in run("permissions")


def test_the_words_of_earlier_versions_still_work() -> None:
    vera = person("vera")
    assert run("rights") == run("permissions")
    run("grant", "vera", "--right", "call_tool", "--permission", "view_server")
    assert catalog.own_permissions(vera) == {"call_tool", "view_server"}
