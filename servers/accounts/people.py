"""What administrators do with accounts. Each verb takes the acting user (`by` None: the command line) and raises
access.Denied for what exceeds their permissions, and Refused for what nobody may do now; both are recorded."""

import hashlib
from collections.abc import Callable, Collection
from typing import Any, cast

from django.contrib.auth.models import Group
from django.db.models import F

from servers import access
from servers.accounts import belongings, browser_sessions, catalog, links, service_accounts
from servers.accounts.authority import (
    Authority,
    Conflict,
    People,
    Refused,
    held_by_groups,
    lock,
    managed,
    require_another_superuser,
    require_not_self,
)
from servers.accounts.catalog import MANAGE
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor, ServerRef
from servers.credentials import identities, reference_grants
from servers.enums import AuditAction
from servers.models import Identity, Server
from servers.signals import account_deleting, work_handed_over


def mark(user: Any) -> str:
    """Changes whenever this person's own permissions, groups or flags do: a form that shows them sends it back."""
    groups = sorted(user.groups.values_list("pk", flat=True))
    own = sorted(user.user_permissions.values_list("pk", flat=True))
    return hashlib.sha256(repr((groups, own, user.is_superuser, user.is_active)).encode()).hexdigest()[:16]


def set_permissions(
    actor: Actor,
    by: Any,
    user: Any,
    *,
    groups: Collection[Group],
    own: Collection[str],
    superuser: bool,
    seen: str | None = None,
) -> None:
    """`own` are codenames. `seen` is the `mark` of the page that was filled in. Events: Django's signals write them."""
    action = AuditAction.PERMISSIONS_CHANGE
    with managed(actor, by, user.get_username()):
        authority, [row] = lock(by, user)
        authority.require_reach(row)
        if seen is not None and seen != mark(row):
            raise Conflict(
                f"The permissions of {row.get_username()} changed after you opened this page. Check them and save "
                "again."
            )
        given = frozenset(own) | held_by_groups(groups)
        authority.require_give(given, superuser)
        if superuser and service_accounts.is_service_account(row):
            raise Refused("A service account can't be a superuser. Give it the permissions that it needs.", action)
        if row.is_superuser and not superuser:
            require_not_self(by, row, "You can't remove your own superuser status. Another superuser can.", action)
            require_another_superuser(row, action)
        if by is not None and row.pk == by.pk and not (superuser or MANAGE in given):
            words = "You would lose your own permission to manage users. Another administrator can take it from you."
            raise Refused(words, action)
        if row.is_superuser != superuser:
            row.is_superuser = superuser
            row.save(update_fields=["is_superuser"])
        row.groups.set(groups)
        others = row.user_permissions.exclude(pk__in=catalog.permission_rows())
        row.user_permissions.set([*others, *catalog.permission_rows(own)])


def disable(actor: Actor, by: Any, user: Any) -> int:
    """Signs the person out everywhere. Returns how many browser sessions ended."""
    action = AuditAction.USER_DISABLE
    with managed(actor, by, user.get_username()) as trail:
        authority, [row] = lock(by, user)
        require_not_self(by, row, "You can't disable your own account. Another administrator can.", action)
        authority.require_reach(row)
        require_another_superuser(row, action)
        if not row.is_active:
            raise Conflict(f"{row.get_username()} is already disabled.")
        return _disable(trail, row)


def _disable(trail: Trail, row: Any) -> int:
    row.is_active = False
    row.save(update_fields=["is_active"])  # the signal records it and ends the personal sessions with servers
    links.revoke_password_links(row)
    ended = browser_sessions.end(row)
    if ended:
        trail.note(AuditAction.SIGN_INS_END, None, row.get_username(), {"count": ended})
    return ended


def enable(actor: Actor, by: Any, user: Any) -> None:
    with managed(actor, by, user.get_username()):
        authority, [row] = lock(by, user)
        authority.require_reach(row)
        if row.is_active:
            raise Conflict(f"{row.get_username()} is already active.")
        row.is_active = True
        row.save(update_fields=["is_active"])


def end_sign_ins(actor: Actor, by: Any, user: Any, ids: Collection[int] | None = None) -> int:
    """Some of a person's browser sessions, or all."""
    with managed(actor, by, user.get_username()) as trail:
        authority, [row] = lock(by, user)
        authority.require_reach(row)
        if ended := browser_sessions.end(row, ids):
            trail.note(AuditAction.SIGN_INS_END, None, row.get_username(), {"count": ended})
    return ended


def hand_over(actor: Actor, by: Any, user: Any, to: Any) -> dict[str, int]:
    """Hand over what can be handed over to another active person. Returns what was moved. See belongings.of for the
    rest."""
    with managed(actor, by, user.get_username()) as trail:
        authority, [row, heir] = lock(by, user, to)
        authority.require_reach(row)
        if row.pk == heir.pk or not heir.is_active:
            raise Refused("Choose another active person.")
        owned = list(Server.objects.select_for_update(no_key=True).filter(owner=row).order_by("pk"))
        if owned and by is not None:
            access.require(by, "change_server")
        Server.objects.filter(pk__in=[server.pk for server in owned]).update(owner=heir, version=F("version") + 1)
        moved = {"servers": len(owned)}
        for _, counts in work_handed_over.send(type(row), user=row, to=heir):
            moved |= cast("dict[str, int]", counts)
        names = {"before": row.get_username(), "after": heir.get_username()}
        for server in owned:
            trail.note(AuditAction.SERVER_CHANGE, ServerRef.of(server), server.name, {"changes": {"Owner": names}})
        details = {"to": heir.get_username(), **moved}
        trail.note(AuditAction.USER_HAND_OVER, None, row.get_username(), details)
    return moved


def end_identity(actor: Actor, by: Any, user: Any, identity: Identity) -> None:
    """Removes a person's identity at a server: their credentials there are erased, the session closes."""
    with managed(actor, by, user.get_username()) as trail:
        authority, [row] = lock(by, user)
        authority.require_reach(row)
        if not identities.finish(trail, identity):
            raise Conflict(f"{row.get_username()} no longer has this identity.")


def delete(actor: Actor, by: Any, user: Any) -> None:
    """Only if nothing is lost with the account; the audit log keeps the name. An account with a long history is
    disabled first, and stays disabled if its history could not be detached."""
    if before := [work for _, work in account_deleting.send(type(user), user=user) if work is not None]:
        with managed(actor, by, user.get_username()) as trail:
            row = _locked_to_delete(by, user)
            if row.is_active:
                _disable(trail, row)
        for work in before:
            cast("Callable[[], None]", work)()
    with managed(actor, by, user.get_username()) as trail:
        row = _locked_to_delete(by, user)
        if ended := browser_sessions.end(row):
            trail.note(AuditAction.SIGN_INS_END, None, row.get_username(), {"count": ended})
        reference_grants.end_of_person(trail, row)
        row.delete()


def _locked_to_delete(by: Any, user: Any) -> Any:
    """Raises access.Denied and Refused."""
    action = AuditAction.USER_DELETE
    authority, [row] = lock(by, user)
    require_not_self(by, row, "You can't delete your own account. Another administrator can.", action)
    authority.require_reach(row)
    require_another_superuser(row, action)
    # A call placed from now on would break the foreign key at the end: it waits for this stronger lock.
    People.select_for_update().filter(pk=row.pk).values_list("pk", flat=True).first()
    if blocking := [item for item in belongings.of(row) if item.blocks]:
        shown = blocking if by is None else belongings.of(row, access.visible_servers(by))
        words = (
            ", ".join(item.title.lower() for item in shown if item.blocks) or "something on servers that you can't see"
        )
        raise Refused(f"{row.get_username()} can't be deleted yet. Hand over or remove first: {words}.", action)
    return row


# --- groups ----------------------------------------------------------------------------------------------------------
def group_mark(group: Group) -> str:
    own = sorted(group.permissions.values_list("pk", flat=True))
    return hashlib.sha256(repr((group.name, own)).encode()).hexdigest()[:16]


def save_group(
    actor: Actor, by: Any, group: Group | None, *, name: str, given: Collection[str], seen: str | None = None
) -> Group:
    """A new group, or another name and other permissions of one."""
    action = AuditAction.PERMISSIONS_CHANGE
    with managed(actor, by, f"group {name}"):
        authority, _ = lock(by)
        authority.require_give(given)
        if group is None:
            row = Group.objects.create(name=name)
        else:
            row = _locked_group(authority, group)
            if seen is not None and seen != group_mark(row):
                raise Conflict(f"The group {row.name} changed after you opened this page. Check it and save again.")
            if row.name != name:
                row.name = name
                row.save(update_fields=["name"])
            if catalog.permissions_of_groups([row]) - frozenset(given):
                _require_reach_of_members(authority, row)
        others = row.permissions.exclude(pk__in=catalog.permission_rows())
        row.permissions.set([*others, *catalog.permission_rows(given)])
        _require_still_manages(authority, action)
    return row


def delete_group(actor: Actor, by: Any, group: Group) -> None:
    """Sessions that may depend on a reference of the group reconnect, and those that do are refused."""
    with managed(actor, by, f"group {group.name}") as trail:
        authority, _ = lock(by)
        row = _locked_group(authority, group)
        _require_reach_of_members(authority, row)
        reference_grants.end_of_group(trail, row)
        row.delete()
        _require_still_manages(authority, AuditAction.PERMISSIONS_CHANGE)


def _locked_group(authority: Authority, group: Group) -> Group:
    row = Group.objects.select_for_update().filter(pk=group.pk).first()
    if row is None:
        raise Conflict(f"The group {group.name} has been deleted.")
    authority.require_give(held_by_groups([row]))
    return row


def _require_reach_of_members(authority: Authority, group: Group) -> None:
    """They lose what the group gave them; a superuser loses nothing. Raises AuthorityExceeded."""
    if not authority.superuser:
        for member in group.user_set.filter(is_superuser=False).order_by("pk"):
            authority.require_reach(member)


def _require_still_manages(authority: Authority, action: AuditAction) -> None:
    if authority.user is not None and MANAGE not in catalog.permissions_of(authority.user):
        words = "You would lose your own permission to manage users. Another administrator can make this change."
        raise Refused(words, action)


# --- of one's own account --------------------------------------------------------------------------------------------
def end_own_sign_ins(actor: Actor, user: Any, ids: Collection[int] | None, keep_key: str) -> int:
    """End the user's own sign-ins; the browser with `keep_key` stays signed in."""
    with audited(actor) as trail:
        if ended := browser_sessions.end(user, ids, keep_key):
            trail.note(AuditAction.SIGN_INS_END, None, user.get_username(), {"count": ended})
    return ended
