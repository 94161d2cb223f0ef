"""The queries of the user pages."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from django.contrib.auth.models import Group
from django.db.models import Count, Prefetch, Q, QuerySet

from servers.accounts import catalog, links
from servers.accounts.authority import People
from servers.enums import LinkPurpose, LinkState
from servers.kit.pages import RowsPage, page_before
from servers.kit.words import Look
from servers.models import AccountLink

PAGE_SIZE = 50
WAITING_SHOWN = 10

ACTIVE = Look("Active", "ok", "circle-check")
DISABLED = Look("Disabled", "bad", "ban")
_LINK_LOOKS = {
    LinkState.OPEN: Look("Invited", "run", "hourglass"),
    LinkState.EXPIRED: Look("Link expired", "warn", "clock-x"),
    LinkState.REVOKED: Look("Link revoked", "", "ban"),
    LinkState.USED: Look("Joined", "ok", "circle-check"),
}
_UNCOVERED = Look("Link not valid", "warn", "alert-triangle")


def look_of(user: Any) -> Look:
    return ACTIVE if user.is_active else DISABLED


@dataclass(frozen=True)
class PersonRow:
    user: Any

    @property
    def look(self) -> Look:
        return look_of(self.user)

    @property
    def groups(self) -> list[str]:
        return [group.name for group in self.user.groups.all()]


def people(text: str = "", show: str = "", before: int | None = None) -> RowsPage[Any]:
    """Newest first; `rows` are users with their groups."""
    found = People.select_related("service_account").prefetch_related(
        Prefetch("groups", queryset=Group.objects.order_by("name"))
    )
    if show in ("active", "disabled"):
        found = found.filter(is_active=show == "active")
    if text:
        found = found.filter(
            Q(username__icontains=text)
            | Q(first_name__icontains=text)
            | Q(last_name__icontains=text)
            | Q(email__icontains=text)
        )
    return page_before(found, "pk", before, PAGE_SIZE)


@dataclass(frozen=True)
class InvitationRow:
    link: AccountLink
    covered: bool

    @property
    def look(self) -> Look:
        state = self.link.state
        return _UNCOVERED if state == LinkState.OPEN and not self.covered else _LINK_LOOKS[state]

    @property
    def open(self) -> bool:
        return self.link.state == LinkState.OPEN

    @property
    def groups(self) -> list[str]:
        return [group.name for group in self.link.groups.all()]

    @property
    def permissions(self) -> str:
        return catalog.names(row.codename for row in self.link.permissions.all())


def invitations(
    text: str = "", before: int | None = None, size: int = PAGE_SIZE, *, revoked: bool = True
) -> RowsPage[AccountLink]:
    """Unused invitations; revoked ones on request."""
    found = _unused() if revoked else _unused().filter(revoked_at=None)
    found = found.select_related("issued_by").prefetch_related("groups", "permissions")
    if text:
        found = found.filter(Q(name__icontains=text) | Q(email__icontains=text))
    return page_before(found, "pk", before, size)


def invitation_rows(rows: list[AccountLink]) -> list[InvitationRow]:
    """Only open ones need their issuer's authority, which is read once per issuer."""
    ask = cache(links.authority_of)
    return [InvitationRow(row, row.state == LinkState.OPEN and links.still_covered(row, ask)) for row in rows]


def _unused() -> QuerySet[AccountLink]:
    return AccountLink.objects.filter(purpose=LinkPurpose.INVITATION, used_at=None)


@dataclass(frozen=True)
class GroupRow:
    group: Group
    permissions: str
    members: int


def groups() -> list[GroupRow]:
    rows = Group.objects.annotate(members=Count("user")).order_by("name").prefetch_related("permissions__content_type")
    return [GroupRow(group, catalog.names(catalog.permissions_of_group(group)), group.members) for group in rows]
