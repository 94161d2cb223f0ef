"""Who may give what to whom: every way to give permissions, tried by people who have some of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group

from servers import access
from servers.accounts import catalog, links, people, service_accounts
from servers.accounts.authority import AuthorityExceeded
from servers.accounts.links import Invitation
from servers.audit.record import Actor
from servers.enums import AuditAction, AuditOutcome
from servers.models import AccountLink, AuditEvent, ReferenceGrant
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db

EVERY = frozenset(catalog.PERMISSIONS)
MANAGERS: dict[str, frozenset[str]] = {
    "has every permission": EVERY,
    "lacks commands": EVERY - {"manage_stdio"},
    "sees and manages": frozenset({"view_server", "manage_users"}),
    "only manages": frozenset({"manage_users"}),
    "does not manage": EVERY - {"manage_users"},
    "has none": frozenset(),
}
GIVEN: dict[str, tuple[frozenset[str], bool]] = {
    **{permission: (frozenset({permission}), False) for permission in catalog.PERMISSIONS},
    "nothing": (frozenset(), False),
    "every permission": (EVERY, False),
    "superuser": (frozenset(), True),
}
#: one permission is refused as the other: the short run tries these
SHORT_RUN = {"view_server", "manage_stdio"}
GIVEN_CASES = [
    pytest.param(name, marks=pytest.mark.long if name in catalog.PERMISSIONS and name not in SHORT_RUN else ())
    for name in GIVEN
]


def manager(name: str) -> Any:
    return person("max", *MANAGERS[name])


def group_with(permissions: frozenset[str]) -> Group:
    group = Group.objects.create(name="given")
    group.permissions.set(catalog.permission_rows(permissions))
    return group


def state() -> tuple[Any, ...]:
    """Everything that gives permissions, in the database."""
    users = get_user_model().objects.order_by("pk")
    return (
        [
            (user.pk, user.is_superuser, user.is_active, user.password, sorted(catalog.permissions_of(user)))
            for user in users
        ],
        sorted((group.name, *sorted(catalog.permissions_of_groups([group]))) for group in Group.objects.all()),
        sorted(AccountLink.objects.values_list("digest", "revoked_at")),
    )


def outcome(by: Any, act: Callable[[], Any]) -> type[BaseException] | None:
    """What was raised. A refusal leaves nothing but one event, which names who tried."""
    before, events = state(), AuditEvent.objects.count()
    refusal: access.Denied | None = None
    try:
        act()
    except access.Denied as denied:
        refusal = denied
    if refusal is None:
        return None
    assert state() == before
    event = AuditEvent.objects.order_by("-seq")[0]
    assert AuditEvent.objects.count() == events + 1
    assert (event.action, event.outcome) == (AuditAction.PERMISSION_DENY, AuditOutcome.DENIED)
    assert event.actor_name == by.get_username()
    if isinstance(refusal, AuthorityExceeded):
        assert json.loads(event.body)["details"]["lacking"] == refusal.lacking != []
    return type(refusal)


def expected(name: str, permissions: frozenset[str], superuser: bool) -> type[BaseException] | None:
    if "manage_users" not in MANAGERS[name]:
        return access.Denied
    return AuthorityExceeded if superuser or permissions - MANAGERS[name] else None


@pytest.mark.parametrize("given", GIVEN_CASES)
@pytest.mark.parametrize("name", MANAGERS)
def test_no_one_gives_a_permission_that_they_do_not_have(name: str, given: str) -> None:
    by, (permissions, superuser) = manager(name), GIVEN[given]
    actor, target, group = Actor.of_user(by), person("tim"), group_with(permissions)
    wanted = expected(name, permissions, superuser)
    for own, groups in ((permissions, []), (frozenset(), [group])):
        mark = people.mark(target)

        def invite(own: Any = own, groups: Any = groups) -> None:
            links.invite(actor, by, Invitation("New", "", superuser, groups, own))

        def grant(own: Any = own, groups: Any = groups, mark: str = mark) -> None:
            people.set_permissions(actor, by, target, groups=groups, own=own, superuser=superuser, seen=mark)

        assert outcome(by, invite) is wanted
        assert outcome(by, grant) is wanted
        if wanted is None:
            people.set_permissions(actor, None, target, groups=[], own=(), superuser=False)
    if not superuser:
        assert outcome(by, lambda: people.save_group(actor, by, None, name="more", given=permissions)) is wanted
        assert outcome(by, lambda: people.save_group(actor, by, group, name="other", given=())) is wanted
        Group.objects.filter(pk=group.pk).update(name="given")
        group.permissions.set(catalog.permission_rows(permissions))
        assert outcome(by, lambda: people.delete_group(actor, by, group)) is wanted


@pytest.mark.parametrize("held", GIVEN_CASES)
@pytest.mark.parametrize("name", MANAGERS)
def test_no_one_acts_on_an_account_that_has_more_permissions(name: str, held: str) -> None:
    """The reset of a password would be a way to those permissions."""
    by, (permissions, superuser) = manager(name), GIVEN[held]
    get_user_model().objects.create_superuser("root")
    target = person("tim", *permissions, is_superuser=superuser)
    heir, actor = person("heir"), Actor.of_user(by)
    wanted = expected(name, permissions, superuser)
    acts: list[Callable[[], Any]] = [
        lambda: links.issue_password_link(actor, by, target),
        lambda: people.end_sign_ins(actor, by, target),
        lambda: people.set_permissions(actor, by, target, groups=[], own=(), superuser=False),
        lambda: people.hand_over(actor, by, target, heir),
        lambda: people.disable(actor, by, target),
        lambda: people.enable(actor, by, target),
        lambda: people.delete(actor, by, target),
    ]
    for act in acts:
        if wanted is not None and act is acts[5]:
            target.is_active = False
            target.save(update_fields=["is_active"])
        assert outcome(by, act) is wanted


@pytest.mark.parametrize("name", [name for name in MANAGERS if "manage_users" in MANAGERS[name]])
def test_an_invitation_of_someone_else_is_renewed_or_revoked_only_by_who_could_issue_it(name: str) -> None:
    by, root = manager(name), get_user_model().objects.create_superuser("root")
    issued = links.invite(Actor.of_user(root), root, Invitation("New", "", False, [], ("manage_stdio",)))
    wanted = None if "manage_stdio" in MANAGERS[name] else AuthorityExceeded
    assert outcome(by, lambda: links.reissue(Actor.of_user(by), by, issued.link)) is wanted
    assert outcome(by, lambda: links.revoke(Actor.of_user(by), by, issued.link)) is wanted


def test_the_command_line_gives_everything() -> None:
    target = person("tim")
    people.set_permissions(Actor(None, "mcpadmin"), None, target, groups=[], own=EVERY, superuser=True)
    assert get_user_model().objects.get(pk=target.pk).is_superuser
    assert catalog.own_permissions(target) == EVERY


def test_every_enforced_permission_is_in_the_catalog_and_has_a_row() -> None:
    enforced = set(access.permissions(person("tim"))) - {"administer"}  # which cannot be granted
    assert enforced == EVERY
    assert set(catalog.permission_rows().values_list("codename", flat=True)) == EVERY
    for permission in catalog.PERMISSIONS.values():
        assert permission.allows.endswith(".")
        assert set(permission.needs) <= EVERY


def test_a_refusal_names_the_permission_as_the_users_page_does() -> None:
    for permission in catalog.PERMISSIONS.values():
        words = f"permission to {permission.name[0].lower()}{permission.name[1:]}."
        assert words in str(access.Denied(permission.codename))


@pytest.mark.parametrize("through", ["group", "person"])
def test_no_one_comes_to_a_reference_that_they_may_not_use_or_grant(through: str) -> None:
    """Anyone with permission to use it can have its value sent to their own server."""
    by, target, deploy = (
        person("mona", "manage_users", "add_server"),
        person("tim"),
        Group.objects.create(name="deploy"),
    )
    holder: dict[str, Any] = {"group": deploy} if through == "group" else {"user": target}
    ReferenceGrant.objects.create(name="PROD_TOKEN", **holder)
    actor = Actor.of_user(by)
    acts: list[Callable[[], Any]] = [
        lambda: people.set_permissions(
            actor, by, by, groups=[deploy], own=["manage_users", "add_server"], superuser=False
        ),
        lambda: links.invite(actor, by, Invitation("New", "", False, [deploy], ())),
        lambda: service_accounts.add(actor, by, service_accounts.NewServiceAccount("robot", groups=[deploy])),
    ]
    if through == "person":
        acts = [lambda: links.issue_password_link(actor, by, target)]
    for act in acts:
        assert outcome(by, act) is AuthorityExceeded
    with pytest.raises(AuthorityExceeded, match=r"Use \$\{PROD_TOKEN\}"):
        acts[0]()
    by.user_permissions.add(catalog.permission_rows(["grant_reference"])[0])
    by = get_user_model().objects.get(pk=by.pk)
    assert outcome(by, acts[-1]) is None, "who may grant it to anyone may give it this way too"


def test_no_one_takes_a_permission_through_a_group_from_a_member_who_has_more() -> None:
    by = person("max", "manage_users", "view_server")
    actor, everyone = Actor.of_user(by), group_with(frozenset({"view_server"}))
    senior, root = person("sue", "manage_stdio"), get_user_model().objects.create_superuser("root")
    everyone.user_set.set([by, senior, root])
    acts = (
        lambda: people.save_group(actor, by, everyone, name="given", given=()),
        lambda: people.delete_group(actor, by, everyone),
    )
    for act in acts:
        assert outcome(by, act) is AuthorityExceeded
    assert outcome(by, lambda: people.save_group(actor, by, everyone, name="new", given=["view_server"])) is None
    everyone.user_set.remove(senior)
    for act in acts:
        assert outcome(by, act) is None
    assert not Group.objects.filter(pk=everyone.pk).exists()


def test_who_may_not_use_a_reference_of_a_group_changes_and_deletes_no_such_group() -> None:
    by, deploy = person("mona", "manage_users"), Group.objects.create(name="deploy")
    actor = Actor.of_user(by)
    grant = ReferenceGrant.objects.create(name="PROD_TOKEN", group=deploy)
    assert outcome(by, lambda: people.save_group(actor, by, deploy, name="other", given=())) is AuthorityExceeded
    assert outcome(by, lambda: people.delete_group(actor, by, deploy)) is AuthorityExceeded
    ReferenceGrant.objects.create(name="PROD_TOKEN", user=by)
    assert outcome(by, lambda: people.delete_group(actor, by, deploy)) is None
    assert not ReferenceGrant.objects.filter(pk=grant.pk).exists()
