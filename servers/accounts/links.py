"""Links that are used once: an invitation creates an account, a password link sets a new password.

The token is random, leaves mcpadmin once and is stored as a digest only. A link works until it is used, revoked or
expired, and only while the person who issued it could still give what it gives.
"""

import hashlib
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Q
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.urls import reverse
from django.utils import timezone

from servers import access
from servers.accounts import catalog, names, service_accounts
from servers.accounts.authority import Authority, Conflict, People, held_by_groups, lock, managed
from servers.accounts.catalog import MANAGE
from servers.audit.accounts import save_new_password
from servers.audit.acts import audited
from servers.audit.record import Actor, acting
from servers.enums import AuditAction, LinkPurpose, LinkState
from servers.models import AccountLink

PASSWORD_LINK = timedelta(hours=24)
#: how long a page still shows what became of a link
FORGOTTEN_AFTER = timedelta(days=30)


class LinkInvalid(Exception):
    """Unknown, used, revoked or expired. The page says no more than that."""


@dataclass(frozen=True)
class Invitation:
    """`permissions` are codenames of the catalog."""

    name: str = ""
    email: str = ""
    superuser: bool = False
    groups: Collection[Group] = ()
    permissions: Collection[str] = ()

    @property
    def subject(self) -> str:
        return self.name or self.email or "(no name)"


@dataclass(frozen=True)
class IssuedLink:
    """The only object with the token itself, which is not stored."""

    link: AccountLink
    token: str = field(repr=False)

    def url(self, base_url: str) -> str:
        return base_url.rstrip("/") + reverse("account_link", args=[self.token])


def invite(actor: Actor, by: Any, invitation: Invitation) -> IssuedLink:
    """`by` None: the command line. Raises access.Denied (recorded) for permissions that `by` does not have."""
    with managed(actor, by, invitation.subject) as trail:
        authority, _ = lock(by)
        given = frozenset(invitation.permissions) | held_by_groups(invitation.groups)
        authority.require_give(given, invitation.superuser)
        issued = _issue(
            actor,
            authority,
            purpose=LinkPurpose.INVITATION,
            name=invitation.name,
            email=invitation.email,
            superuser=invitation.superuser,
            expires_at=timezone.now() + timedelta(days=settings.INVITATION_DAYS),
        )
        issued.link.groups.set(invitation.groups)
        issued.link.permissions.set(catalog.permission_rows(invitation.permissions))
        trail.note(AuditAction.USER_INVITE, None, invitation.subject, _given(invitation) | _until(issued.link))
    return issued


def _given(invitation: Invitation) -> dict[str, Any]:
    groups = sorted(group.name for group in invitation.groups)
    # keys that readers of exported and forwarded events know
    return {"groups": groups, "rights": sorted(invitation.permissions), "superuser": invitation.superuser}


def _until(link: AccountLink) -> dict[str, str]:
    return {"expires": link.expires_at.isoformat(timespec="seconds")}


def issue_password_link(actor: Actor, by: Any, user: Any) -> IssuedLink:
    """Earlier ones of this person stop working. Raises access.Denied (recorded), Conflict."""
    with managed(actor, by, user.get_username()) as trail:
        authority, [row] = lock(by, user)
        authority.require_reach(row)
        service_accounts.require_person(row, AuditAction.PASSWORD_LINK)
        if not row.is_active:
            raise Conflict(f"{row.get_username()} is disabled. Enable the account first.")
        revoke_password_links(row)
        issued = _issue(
            actor,
            authority,
            purpose=LinkPurpose.PASSWORD,
            user=row,
            name=row.get_username(),
            email=row.email,
            expires_at=timezone.now() + PASSWORD_LINK,
        )
        trail.note(AuditAction.PASSWORD_LINK, None, row.get_username(), _until(issued.link))
    return issued


def _issue(actor: Actor, authority: Authority, **fields: Any) -> IssuedLink:
    token = secrets.token_urlsafe(32)
    return IssuedLink(AccountLink.objects.create(digest=_digest(token), **_issuer(actor, authority), **fields), token)


def _issuer(actor: Actor, authority: Authority) -> dict[str, Any]:
    by = authority.user
    return {"issued_by": by, "issued_by_name": actor.name[:150], "by_command": by is None, "issued_at": timezone.now()}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def reissue(actor: Actor, by: Any, link: AccountLink) -> IssuedLink:
    """A new token and a new period for an invitation; the old link stops working. Raises access.Denied, Conflict."""
    with managed(actor, by, str(link)) as trail:
        authority, _ = lock(by)
        row = _unused(link)
        authority.require_give(_permissions(row), row.superuser)
        token = secrets.token_urlsafe(32)
        until = timezone.now() + timedelta(days=settings.INVITATION_DAYS)
        changes = _issuer(actor, authority) | {"digest": _digest(token), "expires_at": until, "revoked_at": None}
        AccountLink.objects.filter(pk=row.pk).update(**changes)
        row.refresh_from_db()
        trail.note(AuditAction.LINK_REISSUE, None, str(row), _until(row))
    return IssuedLink(row, token)


def revoke(actor: Actor, by: Any, link: AccountLink) -> None:
    """Raises access.Denied, Conflict when it was used meanwhile."""
    with managed(actor, by, str(link)) as trail:
        authority, _ = lock(by)
        row = _unused(link)
        authority.require_give(_permissions(row), row.superuser)
        if AccountLink.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=timezone.now()):
            trail.note(AuditAction.LINK_REVOKE, None, str(row))


def _unused(link: AccountLink) -> AccountLink:
    row = AccountLink.objects.select_for_update().get(pk=link.pk)
    if row.used_at is not None:
        raise Conflict(f"{row} has already used this link.")
    return row


def _permissions(link: AccountLink) -> frozenset[str]:
    own = frozenset(catalog.permission_rows().filter(pk__in=link.permissions.all()).values_list("codename", flat=True))
    return own | held_by_groups(link.groups.all())


def revoke_password_links(user: Any) -> None:
    """Revoke a person's password links, in the caller's transaction."""
    now = timezone.now()
    unused = AccountLink.objects.filter(purpose=LinkPurpose.PASSWORD, user=user, used_at=None, revoked_at=None)
    unused.update(revoked_at=now)


@receiver(post_save, sender=get_user_model(), dispatch_uid="accounts.password_links")
def _password_changed(instance: Any, created: bool, **_: Any) -> None:
    """A link in an old mail must not undo it. The attribute is as `servers.audit.accounts` says."""
    if not created and getattr(instance, "_password", None) is not None:
        revoke_password_links(instance)


def delete_expired() -> int:
    """Remove unused invitations and password links, with the names and addresses in them. Returns how many were
    removed. A used invitation is deleted with its account."""
    before = timezone.now() - FORGOTTEN_AFTER
    over = Q(expires_at__lt=before) | Q(revoked_at__lt=before)
    rows = AccountLink.objects.filter(over, Q(used_at=None) | Q(purpose=LinkPurpose.PASSWORD))
    return rows.delete()[1].get(AccountLink._meta.label, 0)


# --- for the person who has the link ---------------------------------------------------------------------------------
def find(token: str) -> AccountLink:
    """Raises LinkInvalid."""
    link = AccountLink.objects.select_related("user", "issued_by").filter(digest=_digest(token)).first()
    if link is None or not works(link):
        raise LinkInvalid
    return link


def works(link: AccountLink) -> bool:
    return link.state == LinkState.OPEN and still_covered(link)


def authority_of(issuer: Any) -> Authority | None:
    """None: they may no longer give anything."""
    return Authority.of(issuer) if issuer is not None and access.may(issuer, MANAGE) else None


def still_covered(link: AccountLink, ask: Callable[[Any], Authority | None] = authority_of) -> bool:
    """Whether the issuer may still give what the link gives. A link does not outlive its issuer's permissions."""
    if link.purpose == LinkPurpose.PASSWORD and (link.user is None or not link.user.is_active):
        return False
    if link.by_command:
        return True
    authority = ask(link.issued_by)
    if authority is None:
        return False
    if authority.superuser:
        return True  # without reading what the link gives
    if link.purpose == LinkPurpose.PASSWORD:
        return authority.reaches(link.user)
    return authority.may_give(_permissions(link), link.superuser)


def _claim(link: AccountLink) -> AccountLink:
    """Use the link, for this request only, in the caller's transaction. Raises LinkInvalid."""
    now = timezone.now()
    rows = AccountLink.objects.filter(pk=link.pk, used_at=None, revoked_at=None, expires_at__gt=now, digest=link.digest)
    if not rows.update(used_at=now):
        raise LinkInvalid
    row = AccountLink.objects.select_related("user", "issued_by").get(pk=link.pk)
    if not still_covered(row):
        raise LinkInvalid
    return row


def join(link: AccountLink, user: Any, ip: str, request_id: str = "") -> Any:
    """Saves `user`, a new account with its password, with what the invitation gives. Raises LinkInvalid, IntegrityError for a taken
    name."""
    with transaction.atomic():
        row = _claim(link)
        names.require_free(user.get_username())
        user.first_name, user.is_superuser = row.name, row.superuser
        with acting(Actor.of_user(user, ip, request_id)):  # it has no id yet
            user.save()
        with audited(Actor.of_user(user, ip, request_id)) as trail:
            user.groups.set(row.groups.all())
            user.user_permissions.set(row.permissions.all())
            AccountLink.objects.filter(pk=row.pk).update(user=user)
            details = {"invited_by": row.issued_by_name, "invitation": str(row)}
            trail.note(AuditAction.USER_JOIN, None, user.get_username(), details)
    return People.get(pk=user.pk)


def set_password(link: AccountLink, hashed: Any, ip: str, request_id: str = "") -> Any:
    """`hashed` is the link's user with a new password set and not saved. Raises LinkInvalid."""
    with transaction.atomic():
        row = _claim(link)
        with audited(Actor.of_user(hashed, ip, request_id)) as trail:
            save_new_password(hashed)
            trail.note(AuditAction.PASSWORD_RESET, None, hashed.get_username(), {"issued_by": row.issued_by_name})
    return People.get(pk=hashed.pk)
