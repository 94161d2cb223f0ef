"""Accounts for agents that do not act for a person: a pipeline, a scheduled job.

They are users, so that permissions, groups, the audit log and handing over work as they do for people. They have no
password, and none can be set; they only have tokens.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group

from servers.accounts import catalog, names
from servers.accounts.authority import Authority, People, Refused, held_by_groups, lock, managed
from servers.audit.record import Actor
from servers.enums import AuditAction
from servers.models import ServiceAccount


@dataclass(frozen=True)
class NewServiceAccount:
    """`permissions` are codenames of the catalog. Such an account is never a superuser."""

    name: str
    purpose: str = ""
    groups: Collection[Group] = ()
    permissions: Collection[str] = ()


def add(actor: Actor, by: Any, wanted: NewServiceAccount) -> Any:
    """The new user. Raises access.Denied (recorded) for permissions that `by` does not have, IntegrityError for a taken
    name."""
    with managed(actor, by, wanted.name) as trail:
        authority, _ = lock(by)
        authority.require_give(frozenset(wanted.permissions) | held_by_groups(wanted.groups))
        names.require_free(People.model.normalize_username(wanted.name))
        user = People.create_user(wanted.name)  # without a password: none is valid
        user.groups.set(wanted.groups)
        user.user_permissions.set(catalog.permission_rows(wanted.permissions))
        ServiceAccount.objects.create(user=user, purpose=wanted.purpose, created_by=actor.name[:150])
        trail.note(AuditAction.SERVICE_ACCOUNT_CREATE, None, wanted.name, {"purpose": wanted.purpose})
    return user


def is_service_account(user: Any) -> bool:
    return ServiceAccount.objects.filter(user_id=user.pk).exists()


def require_person(user: Any, action: AuditAction) -> None:
    """Raises Refused."""
    if is_service_account(user):
        raise Refused(f"{user.get_username()} is a service account. It has tokens and never signs in.", action)


def require_managed(by: Any, user: Any) -> None:
    """Require that `by` may act for this service account: it has no permission that `by` lacks. Raises access.Denied
    and Refused. Runs in the caller's transaction."""
    authority, [row] = lock(by, user)
    if not is_service_account(row):
        raise Refused(f"{row.get_username()} is a person and creates tokens in their own account.")
    authority.require_reach(row)


def managed_by(user: Any) -> list[Any]:
    """Service accounts for which this person may create tokens, by name."""
    authority = Authority.of(user)
    accounts = People.filter(service_account__isnull=False, is_active=True)
    return [found for found in accounts.order_by("username") if authority.reaches(found)]
