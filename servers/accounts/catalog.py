"""The permissions that are enforced, what each allows, and where a person gets each one from.

Django's Permission and Group are the store. Permissions that are not listed here have no effect anywhere.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.db.models import Q

from servers import access

APP = "servers"
MANAGE = "manage_users"
SUPERUSER = "superuser"


@dataclass(frozen=True)
class CatalogPermission:
    """A permission that is enforced, with its description. `implies`: what it allows indirectly."""

    codename: str
    name: str
    allows: str
    implies: str = ""

    @property
    def needs(self) -> tuple[str, ...]:
        """The permissions without which it has no effect."""
        return access.NEEDS.get(self.codename, ())


@dataclass(frozen=True)
class Section:
    title: str
    permissions: tuple[CatalogPermission, ...]


SECTIONS = (
    Section(
        "Servers",
        (
            CatalogPermission(
                "view_server", "See servers", "See every server with its tools, sessions, logs and subscriptions."
            ),
            CatalogPermission(
                "add_server",
                "Register servers",
                "Register, clone and import servers that are reached by URL.",
                "Workers connect to these addresses, and references such as ${NAME} are sent there.",
            ),
            CatalogPermission(
                "change_server",
                "Change servers",
                "Change settings, enable, disable and archive servers, and start their sign-in.",
            ),
            CatalogPermission(
                "delete_server",
                "Delete servers",
                "Delete servers with their settings, credentials, logs and definitions. Calls and audit events are kept.",
            ),
            CatalogPermission(
                "manage_stdio",
                "Register commands",
                "Register, change, clone and enable servers that are commands run by the workers.",
                "This includes the files and hosts that they can access: treat it as access to the machine.",
            ),
        ),
    ),
    Section(
        "Use",
        (
            CatalogPermission(
                "call_tool",
                "Call tools",
                "Run tools, read resources, get prompts, and use personal credentials.",
                "Calls use the shared identity of each server.",
            ),
            CatalogPermission(
                "answer_question",
                "Answer server requests",
                "Answer and decline server requests in the inbox, and approve or refuse agent calls.",
            ),
            CatalogPermission(
                "manage_subscription",
                "Subscribe to resources",
                "Subscribe, unsubscribe, and change subscriptions and their webhooks.",
                "Webhooks send notifications to any address that the person chooses.",
            ),
            CatalogPermission(
                "view_payload",
                "Read arguments and results",
                "Read what every call sent and returned, including in personal sessions, and read stored resources.",
            ),
        ),
    ),
    Section(
        "Secrets",
        (
            CatalogPermission(
                "view_credential", "See credentials", "See names and state of stored credentials, never a secret."
            ),
            CatalogPermission(
                "manage_credential",
                "Manage credentials",
                "Add, replace and delete credentials, and attach them to servers.",
                "With Change servers, stored secrets can be sent to the address they are bound to.",
            ),
            CatalogPermission(
                "grant_reference",
                "Grant references",
                "Choose which operator variables and files (${NAME}, ${file:/path}) a person or group may send to servers.",
            ),
        ),
    ),
    Section(
        "Review",
        (
            CatalogPermission(
                "view_auditevent",
                "Read the audit log",
                "Read and export every event, with names and addresses of people.",
            ),
            CatalogPermission(
                "verify_chain",
                "Verify the audit log",
                "Start a verification of the hash chain and see its result.",
            ),
            CatalogPermission(
                "erase_payload",
                "Erase arguments and results",
                "Erase what a call sent or returned, with a reason. The audit log stays valid.",
                "Erased contents cannot be restored.",
            ),
            CatalogPermission(
                "view_backgroundjob", "See background jobs", "See housekeeping, verification and key rotation."
            ),
        ),
    ),
    Section(
        "People",
        (
            CatalogPermission(
                MANAGE,
                "Manage users",
                "Invite people, change their permissions and groups, end their sign-ins, disable and delete accounts.",
                "A person can grant only permissions that they have, and only to people who do not have more.",
            ),
        ),
    ),
)
PERMISSIONS = {permission.codename: permission for section in SECTIONS for permission in section.permissions}


def names(codenames: Iterable[str]) -> str:
    """For sentences: "Call tools, See servers"."""
    wanted = set(codenames)
    return ", ".join(permission.name for permission in PERMISSIONS.values() if permission.codename in wanted)


def permission_rows(codenames: Collection[str] | None = None) -> Any:
    """Django's rows, of these codenames or of all."""
    chosen = PERMISSIONS if codenames is None else set(codenames) & PERMISSIONS.keys()
    return Permission.objects.filter(content_type__app_label=APP, codename__in=chosen)


def own_permissions(user: Any) -> frozenset[str]:
    return frozenset(permission_rows().filter(user=user).values_list("codename", flat=True))


def permissions_of_groups(groups: Iterable[Group]) -> frozenset[str]:
    found = permission_rows().filter(group__in=list(groups))
    return frozenset(found.values_list("codename", flat=True))


def permissions_of(user: Any) -> frozenset[str]:
    """Own permissions and those of groups, even for a disabled account, which gets them back when enabled. All of them
    for a superuser."""
    if user.is_superuser:
        return frozenset(PERMISSIONS)
    found = permission_rows().filter(Q(user=user) | Q(group__user=user))
    return frozenset(found.values_list("codename", flat=True))


# --- for pages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class HeldPermission:
    """`sources` in words. `missing`: names of permissions without which it has no effect."""

    permission: CatalogPermission
    sources: tuple[str, ...]
    missing: str


@dataclass(frozen=True)
class HeldSection:
    title: str
    permissions: tuple[HeldPermission, ...]


def effective(user: Any) -> list[HeldSection]:
    """What the person may do and where each permission comes from; sections without any are left out. Three queries."""
    own = own_permissions(user)
    groups = {
        group.name: permissions_of_group(group) for group in user.groups.prefetch_related("permissions__content_type")
    }
    sources = {
        codename: tuple(
            [*(["Superuser"] if user.is_superuser else [])]
            + [f"Group {name}" for name, held in sorted(groups.items()) if codename in held]
            + (["Granted directly"] if codename in own else [])
        )
        for codename in PERMISSIONS
    }
    sections = [
        HeldSection(
            section.title,
            tuple(
                HeldPermission(
                    permission,
                    sources[permission.codename],
                    names(needed for needed in permission.needs if not sources[needed]),
                )
                for permission in section.permissions
                if sources[permission.codename]
            ),
        )
        for section in SECTIONS
    ]
    return [section for section in sections if section.permissions]


def permissions_of_group(group: Group) -> frozenset[str]:
    """For a group whose permissions were prefetched."""
    return frozenset(
        row.codename
        for row in group.permissions.all()
        if row.content_type.app_label == APP and row.codename in PERMISSIONS
    )
