"""What a person who manages users may grant, and whose account they may change: never more than they have themselves.

A manager acts only on people whose permissions the manager has too. Otherwise, resetting a password would be a way to
gain permissions that were never granted. References that a person may use count as permissions: they can have the value
sent to a server of their own.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Q

from servers import access, permissions
from servers.accounts import catalog
from servers.accounts.catalog import MANAGE, SUPERUSER
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor, Event, record
from servers.credentials import reference_grants
from servers.enums import AuditAction, AuditOutcome
from servers.models import ReferenceGrant

People = get_user_model()._default_manager
#: before the name of a reference, among codenames
REFERENCE = "reference "


def held_by_groups(groups: Iterable[Group]) -> frozenset[str]:
    """Their permissions, and the references granted to them."""
    groups = list(groups)
    return catalog.permissions_of_groups(groups) | _references(Q(group__in=groups))


def held_by(user: Any) -> frozenset[str]:
    """The permissions of a user, and the references granted to them, even if the account is disabled."""
    return catalog.permissions_of(user) | _references(Q(user=user) | Q(group__user=user))


def references_by_group() -> dict[int, frozenset[str]]:
    found: dict[int, set[str]] = {}
    for group_id, name in ReferenceGrant.objects.exclude(group=None).values_list("group_id", "name"):
        found.setdefault(group_id, set()).add(f"{REFERENCE}{name}")
    return {group_id: frozenset(names) for group_id, names in found.items()}


def _references(whose: Q) -> frozenset[str]:
    return frozenset(
        f"{REFERENCE}{name}" for name in ReferenceGrant.objects.filter(whose).values_list("name", flat=True)
    )


class AuthorityExceeded(access.Denied):
    """`lacking`: the codenames that the manager does not have, or "superuser"."""

    def __init__(self, lacking: Collection[str], words: str) -> None:
        super().__init__(MANAGE)
        self.args = (words,)
        self.lacking = sorted(lacking)


class Refused(Exception):
    """An action that no one may take now, in words for the person who tried. Recorded as denied if it names an
    action."""

    def __init__(self, words: str, action: AuditAction | None = None) -> None:
        super().__init__(words)
        self.action = action


class Conflict(Refused):
    """Another administrator was faster: what the page showed is out of date."""


@dataclass(frozen=True)
class Authority:
    """The authority of a user, or of the command line (`user` None), which has every permission."""

    user: Any
    superuser: bool
    held: frozenset[str]

    @classmethod
    def of(cls, user: Any) -> "Authority":
        if user is None:
            return cls(None, True, frozenset(catalog.PERMISSIONS))
        return cls(user, user.is_superuser, held_by(user))

    def lacks(self, codenames: Collection[str], superuser: bool = False) -> frozenset[str]:
        if self.superuser:
            return frozenset()
        missing = frozenset(codenames) - self.held
        if reference_grants.PERMISSION in self.held:
            missing = frozenset(name for name in missing if not name.startswith(REFERENCE))
        return missing | ({SUPERUSER} if superuser else frozenset())

    def may_give(self, codenames: Collection[str], superuser: bool = False) -> bool:
        return not self.lacks(codenames, superuser)

    def reaches(self, user: Any) -> bool:
        return self.may_give(held_by(user), user.is_superuser)

    def require_give(self, codenames: Collection[str], superuser: bool = False) -> None:
        """Raises AuthorityExceeded."""
        if lacking := self.lacks(codenames, superuser):
            raise AuthorityExceeded(
                lacking, f"You can grant only permissions that you have. You don't have: {in_words(lacking)}."
            )

    def require_reach(self, user: Any) -> None:
        """Raises AuthorityExceeded."""
        if lacking := self.lacks(held_by(user), user.is_superuser):
            named = in_words(lacking)
            said = f"{user.get_username()} has permissions that you don't have: {named}. Ask someone who has them."
            raise AuthorityExceeded(lacking, said)


def in_words(lacking: Collection[str]) -> str:
    """The names of codenames and references, for use in a sentence."""
    if SUPERUSER in lacking:
        return "Superuser"
    names = sorted(name.removeprefix(REFERENCE) for name in lacking if name.startswith(REFERENCE))
    return ", ".join(filter(None, [catalog.names(lacking), *(f"Use ${{{name}}}" for name in names)]))


@contextmanager
def managed(actor: Actor, by: Any, subject: str) -> Iterator[Trail]:
    """One audited transaction of a manager. A refusal in it (access.Denied or Refused) is rolled back, recorded as
    denied, and raised again."""
    if by is not None:
        permissions.require(by, actor, MANAGE, subject=subject)
    try:
        with audited(actor) as trail:
            yield trail
    except access.Denied as denied:
        permissions.record_denial(actor, denied, subject, lacking=getattr(denied, "lacking", []))
        raise
    except Refused as refused:
        if refused.action is not None:
            event = Event(refused.action, AuditOutcome.DENIED, actor, subject=subject, details={"reason": str(refused)})
            with transaction.atomic(durable=True):
                record(event)
        raise


def lock(by: Any, *others: Any) -> tuple[Authority, list[Any]]:
    """Locks the manager, `others` and all active superusers until the transaction ends, always in one order, and reads
    them again: two administrators who act on each other wait for each other here. Their calls do not wait.

    Raises access.Denied if the manager lost the permission since, Conflict if one of `others` is gone.
    """
    keys = [user.pk for user in (by, *others) if user is not None]
    rows = (
        People.select_for_update(no_key=True)
        .filter(Q(pk__in=keys) | Q(is_superuser=True, is_active=True))
        .order_by("pk")
    )
    found = {user.pk: user for user in rows}
    if by is not None:
        by = found.get(by.pk)
        if by is None or not access.may(by, MANAGE):
            raise access.Denied(MANAGE)
    if gone := [user for user in others if user.pk not in found]:
        raise Conflict(f"The account {gone[0].get_username()} has been deleted.")
    return Authority.of(by), [found[user.pk] for user in others]


def require_another_superuser(user: Any, action: AuditAction) -> None:
    """Call after `lock`. Raises Refused for the only active superuser."""
    others = People.filter(is_superuser=True, is_active=True).exclude(pk=user.pk)
    if user.is_superuser and user.is_active and not others.exists():
        words = f"{user.get_username()} is the only active superuser. Make another person a superuser first."
        raise Refused(words, action)


def require_not_self(by: Any, user: Any, words: str, action: AuditAction) -> None:
    """Raises Refused."""
    if by is not None and by.pk == user.pk:
        raise Refused(words, action)
