"""Disabling, handing over and deleting accounts, and what keeps an installation from losing its last administrator."""

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.db import connections
from django.test import Client
from django.utils import timezone

from servers import access
from servers.accounts import belongings, catalog, people
from servers.accounts.authority import Conflict, Refused
from servers.audit import payloads
from servers.audit.record import SYSTEM, Actor
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from servers.models import AuditEvent, Credential, Identity, ReferenceGrant, Server
from sessions.models import Question, Subscription
from tests.servers.conftest import person
from tests.sessions.host.make import make_session
from tests.sessions.subscriptions.rows import add_version, make_subscription

pytestmark = pytest.mark.django_db


def superuser(name: str, **fields: Any) -> Any:
    return get_user_model().objects.create_superuser(name, password="correct horse battery", **fields)


def fresh(user: Any) -> Any:
    return get_user_model().objects.get(pk=user.pk)


def newest() -> tuple[AuditEvent, dict[str, Any]]:
    event = AuditEvent.objects.order_by("-seq")[0]
    return event, json.loads(event.body)["details"]


def keep(user: Any, **changes: Any) -> Callable[[Any], None]:
    """`set_permissions` with what the user has, except for `changes`."""

    def act(by: Any) -> None:
        now = {"groups": list(user.groups.all()), "own": catalog.own_permissions(user), "superuser": user.is_superuser}
        people.set_permissions(Actor.of_user(by) if by else SYSTEM, by, user, **now | changes)

    return act


# --- the last superuser, and oneself ---------------------------------------------------------------------------------
ENDS: dict[str, Callable[[Any, Any], Any]] = {
    "disabled": lambda by, user: people.disable(Actor.of_user(by) if by else SYSTEM, by, user),
    "demoted": lambda by, user: keep(user, superuser=False)(by),
    "deleted": lambda by, user: people.delete(Actor.of_user(by) if by else SYSTEM, by, user),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_only_active_superuser_stays_one_regardless_of_who_asks(end: str) -> None:
    root = superuser("root")
    superuser("old", is_active=False)
    for by in (None, root):
        with pytest.raises(Refused):
            ENDS[end](by, root)
        event, details = newest()
        assert event.outcome == AuditOutcome.DENIED
        assert event.subject == "root"
        assert "superuser" in details["reason"] or "your own" in details["reason"]
    assert (fresh(root).is_superuser, fresh(root).is_active) == (True, True)


@pytest.mark.parametrize("end", ENDS)
def test_one_of_two_superusers_can_go_but_not_by_their_own_hand(end: str) -> None:
    root, rita = superuser("root"), superuser("rita")
    with pytest.raises(Refused, match="your own"):
        ENDS[end](root, root)
    ENDS[end](rita, root)
    assert not get_user_model().objects.filter(pk=root.pk, is_superuser=True, is_active=True).exists()


def test_a_manager_cannot_give_up_managing_by_oneself_in_any_way() -> None:
    group = Group.objects.create(name="managers")
    group.permissions.set(catalog.permission_rows({"manage_users"}))
    max_ = person("max")
    max_.groups.add(group)
    max_, actor = fresh(max_), Actor.of_user(max_)
    acts: list[Callable[[], Any]] = [
        lambda: keep(max_, groups=[])(max_),
        lambda: people.save_group(actor, max_, group, name="managers", given=()),
        lambda: people.delete_group(actor, max_, group),
        lambda: people.disable(actor, max_, max_),
        lambda: people.delete(actor, max_, max_),
    ]
    for act in acts:
        with pytest.raises(Refused):
            act()
        assert newest()[0].outcome == AuditOutcome.DENIED
    assert fresh(max_).has_perm("servers.manage_users")


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.django_db(transaction=True)
def test_two_superusers_who_demote_each_other_at_once_leave_one(database: str, request: pytest.FixtureRequest) -> None:
    if database == "postgresql":
        request.getfixturevalue("on_postgres")
    for _ in range(5):
        get_user_model().objects.all().delete()
        pair = [superuser("root"), superuser("rita")]
        together, outcomes = threading.Barrier(2), []

        def demote(by: Any, user: Any, together: threading.Barrier = together, outcomes: list[str] = outcomes) -> None:
            together.wait(10)
            try:
                keep(user, superuser=False)(by)
                outcomes.append("done")
            except Exception as refused:  # which one it is, is judged below
                outcomes.append(type(refused).__name__)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=demote, args=order) for order in (pair, pair[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(outcomes) == ["Denied", "done"]
        assert get_user_model().objects.filter(is_superuser=True, is_active=True).count() == 1


def test_a_form_that_is_out_of_date_changes_nothing_and_says_so() -> None:
    root, vera = superuser("root"), person("vera", "view_server")
    seen = people.mark(vera)
    keep(vera, own={"call_tool"})(root)
    with pytest.raises(Conflict, match="changed after you opened this page"):
        keep(vera, own={"view_server", "view_payload"}, seen=seen)(root)
    assert catalog.own_permissions(vera) == {"call_tool"}
    group = people.save_group(SYSTEM, None, None, name="Night", given={"view_server"})
    seen = people.group_mark(group)
    people.save_group(SYSTEM, None, group, name="Night", given={"call_tool"}, seen=seen)
    with pytest.raises(Conflict):
        people.save_group(SYSTEM, None, group, name="Day", given=(), seen=seen)
    for act, word in ((people.disable, "already disabled"), (people.enable, "already active")):
        act(SYSTEM, None, vera)
        with pytest.raises(Conflict, match=word):
            act(SYSTEM, None, vera)


def test_permissions_that_are_not_ours_survive_a_change() -> None:

    vera, foreign = person("vera"), Permission.objects.get(codename="add_session")
    vera.user_permissions.add(foreign)
    keep(vera, own={"call_tool"})(None)
    assert set(vera.user_permissions.values_list("codename", flat=True)) == {"add_session", "call_tool"}


# --- disabling -------------------------------------------------------------------------------------------------------
def test_a_disabled_person_is_signed_out_everywhere_and_comes_back_with_the_same_permissions() -> None:
    vera = person("vera", "view_server")
    browsers = [Client(), Client()]
    for browser in browsers:
        browser.force_login(vera)
    assert people.disable(SYSTEM, None, vera) == 2
    for browser in browsers:
        assert browser.get("/servers/")["Location"].startswith("/accounts/login/")
    assert not Client().login(username="vera", password="correct horse battery")
    people.enable(SYSTEM, None, vera)
    assert browsers[0].get("/servers/").status_code == 302, "enabling revives no sign-in"
    assert Client().login(username="vera", password="correct horse battery")
    assert catalog.own_permissions(vera) == {"view_server"}
    actions = list(AuditEvent.objects.order_by("seq").values_list("action", flat=True))
    assert [
        a for a in actions if a in (AuditAction.USER_DISABLE, AuditAction.USER_ENABLE, AuditAction.SIGN_INS_END)
    ] == [
        AuditAction.USER_DISABLE,
        AuditAction.SIGN_INS_END,
        AuditAction.USER_ENABLE,
    ]


# --- handing over and deleting ---------------------------------------------------------------------------------------
def question(session: Any, owner: Any) -> Question:
    return Question.objects.create(
        session=session,
        server=session.server,
        server_name=session.server.name,
        kind="form",
        method="elicitation/create",
        origin="request",
        summary="Which?",
        question=payloads.store(PayloadKind.QUESTION, "{}"),
        owner=owner,
        owner_name=owner.get_username(),
        created_at=timezone.now(),
        expires_at=timezone.now() + timedelta(minutes=10),
    )


def test_what_can_be_handed_over_moves_and_the_rest_is_named() -> None:
    vera, heir = person("vera"), person("heir")
    session = make_session("orders")
    Server.objects.filter(pk=session.server_id).update(owner=vera)
    version = Server.objects.get(pk=session.server_id).version
    subscription = make_subscription(session, created_by=vera, created_by_name="vera")
    asked = question(session, vera)
    own = Identity.objects.create(server=session.server, kind="personal", name="vera", user=vera)
    Credential.objects.create(name="own", kind="bearer", owner=vera, sealed_at=timezone.now()).uses.create(identity=own)
    assert people.hand_over(SYSTEM, None, vera, heir) == {
        "servers": 1,
        "subscriptions": 1,
        "inbox": 1,
        "saved_calls": 0,
    }
    server = Server.objects.get(pk=session.server_id)
    assert (server.owner, server.version) == (heir, version + 1)
    subscription = Subscription.objects.get(pk=subscription.pk)
    assert (subscription.created_by, subscription.created_by_name) == (heir, "heir")
    asked.refresh_from_db()
    assert (asked.owner, asked.owner_name) == (heir, "heir")
    [rest] = belongings.of(vera)
    assert (rest.title, rest.moves, rest.blocks) == ("1 personal identity", False, True)
    assert "1 personal credential" in rest.note
    event, details = newest()
    assert event.action == AuditAction.USER_HAND_OVER
    assert details == {"to": "heir", "servers": 1, "subscriptions": 1, "inbox": 1, "saved_calls": 0}


@pytest.mark.parametrize("to", ["oneself", "a disabled person"])
def test_nothing_is_handed_to_oneself_or_a_disabled_person(to: str) -> None:
    vera, gone = person("vera"), person("gone", is_active=False)
    with pytest.raises(Refused, match="another active person"):
        people.hand_over(SYSTEM, None, vera, vera if to == "oneself" else gone)


def test_servers_are_handed_over_only_by_someone_who_may_change_servers() -> None:

    vera, heir, max_ = person("vera"), person("heir"), person("max", "manage_users", "view_server")
    session = make_session("orders")
    Server.objects.filter(pk=session.server_id).update(owner=vera)
    with pytest.raises(access.Denied):
        people.hand_over(Actor.of_user(max_), max_, vera, heir)
    assert Server.objects.get(pk=session.server_id).owner == vera


def test_an_account_is_deleted_only_when_nothing_is_lost_with_it() -> None:
    vera, heir = person("vera"), person("heir")
    session = make_session("orders")
    Server.objects.filter(pk=session.server_id).update(owner=vera)
    own = Identity.objects.create(server=session.server, kind="personal", name="vera", user=vera)
    Credential.objects.create(name="own", kind="bearer", owner=vera, sealed_at=timezone.now()).uses.create(identity=own)

    def refused() -> str:
        with pytest.raises(Refused) as refusal:
            people.delete(SYSTEM, None, vera)
        assert newest()[0].action == AuditAction.USER_DELETE
        assert newest()[0].outcome == AuditOutcome.DENIED
        return str(refusal.value)

    assert "owner of 1 server, 1 personal identity" in refused()
    people.hand_over(SYSTEM, None, vera, heir)
    assert "1 personal identity" in refused()
    people.end_identity(SYSTEM, None, vera, own)
    assert not Credential.objects.filter(name="own").exists()
    own.refresh_from_db()
    watched = make_subscription(session)
    watched.identity = own
    add_version(watched, "text")
    assert "1 personal subscription with history" in refused()
    Subscription.objects.filter(pk=watched.pk).delete()
    ReferenceGrant.objects.create(name="MCP_TOKEN", user=vera)
    people.delete(SYSTEM, None, vera)
    revoked = AuditEvent.objects.get(action=AuditAction.REFERENCE_REVOKE)
    assert (revoked.subject, json.loads(revoked.body)["details"]) == ("MCP_TOKEN", {"from": "vera"})
    assert not get_user_model().objects.filter(username="vera").exists()
    assert AuditEvent.objects.filter(subject="vera").count() > 3, "the log keeps the name"


def test_belongings_on_servers_that_a_viewer_does_not_see_are_not_counted() -> None:
    vera = person("vera")
    session = make_session("orders")
    Server.objects.filter(pk=session.server_id).update(owner=vera)
    make_subscription(session, created_by=vera, created_by_name="vera")
    question(session, vera)
    Identity.objects.create(server=session.server, kind="personal", name="vera", user=vera)
    assert len(belongings.of(vera)) == 4
    assert belongings.of(vera, Server.objects.none()) == []
