"""Sign-ins, accounts and permissions: Django's signals become audit events. Connected when the app is ready.

Each event is appended in the transaction of its change, so a change of permissions that cannot be audited does not
happen.
"""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete, pre_save
from django.dispatch import receiver
from django.http import HttpRequest

from servers.audit.record import SYSTEM, Actor, Event, client_ip, record
from servers.enums import AuditAction, AuditOutcome

User = get_user_model()
_FLAGS = ("is_superuser", "is_staff", "is_active")
_FACTS = (User.USERNAME_FIELD, "email", "first_name", "last_name")
_BEFORE = "_audit_before"
_NOTED_BY_CALLER = "_audit_noted_by_caller"
_HELD = "_audit_held"


def _append(
    action: AuditAction, actor: Actor, subject: str, outcome: AuditOutcome = AuditOutcome.OK, **details: Any
) -> None:
    with transaction.atomic():
        record(Event(action, outcome, actor, subject=subject, details=details))


# --- signing in and out ------------------------------------------------------------------------------------------------
def _visitor(request: HttpRequest | None, user: Any = None) -> Actor:
    if request is None:
        return SYSTEM if user is None else Actor.of_user(user)
    return Actor.of_user(user, client_ip(request), getattr(request, "request_id", ""))


@receiver(user_logged_in, dispatch_uid="audit.sign_in")
def signed_in(sender: Any, user: Any, request: HttpRequest | None = None, **_: Any) -> None:
    _append(AuditAction.SIGN_IN, _visitor(request, user), user.get_username())


@receiver(user_logged_out, dispatch_uid="audit.sign_out")
def signed_out(sender: Any, user: Any, request: HttpRequest | None = None, **_: Any) -> None:
    if user is not None:  # a sign-out without a sign-in is not an event
        _append(AuditAction.SIGN_OUT, _visitor(request, user), user.get_username())


@receiver(user_login_failed, dispatch_uid="audit.sign_in_failed")
def sign_in_failed(
    sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, reason: str = "", **_: Any
) -> None:
    """An unknown name is not stored: people type their password into the wrong field. Names are compared as for
    sign-in, ignoring case."""
    name = str(credentials.get(User.USERNAME_FIELD) or credentials.get("username") or credentials.get("email") or "")
    found = User._default_manager.filter(**{f"{User.USERNAME_FIELD}__iexact": name})
    known = list(found.values_list(User.USERNAME_FIELD, flat=True))
    subject = name if name in known else known[0] if known else "(unknown user)"
    details = {"reason": reason} if reason else {}
    _append(AuditAction.SIGN_IN_FAILED, _visitor(request), subject, AuditOutcome.FAILED, **details)


# --- accounts ----------------------------------------------------------------------------------------------------------
@receiver(pre_save, sender=User, dispatch_uid="audit.user_before")
def remember_user(sender: Any, instance: Any, raw: bool = False, update_fields: Any = None, **_: Any) -> None:
    if raw or instance.pk is None or (update_fields is not None and not {*_FLAGS, *_FACTS} & set(update_fields)):
        setattr(instance, _BEFORE, None)
        return
    setattr(instance, _BEFORE, User._default_manager.filter(pk=instance.pk).values(*_FLAGS, *_FACTS).first())


@receiver(post_save, sender=User, dispatch_uid="audit.user_saved")
def user_saved(sender: Any, instance: Any, created: bool, raw: bool = False, **_: Any) -> None:
    if raw:  # a fixture
        return
    actor, name = Actor.current(), instance.get_username()
    if created:
        given: dict[str, Any] = {flag: True for flag in _FLAGS if getattr(instance, flag)}
        _append(AuditAction.USER_CREATE, actor, name, AuditOutcome.OK, **given)
        return
    before = getattr(instance, _BEFORE, None) or {}
    changes = {
        key: _change(old, getattr(instance, key)) for key, old in before.items() if old != getattr(instance, key)
    }
    if "is_active" in changes:
        del changes["is_active"]
        _append(AuditAction.USER_ENABLE if instance.is_active else AuditAction.USER_DISABLE, actor, name)
    for action, keys in ((AuditAction.PERMISSIONS_CHANGE, _FLAGS), (AuditAction.USER_CHANGE, _FACTS)):
        if changed := {key: changes[key] for key in keys if key in changes}:
            _append(action, actor, name, changes=changed)
    # Set by set_password() until the end of save(); a silent upgrade of the hash at sign-in clears it before.
    if getattr(instance, "_password", None) is not None and not getattr(instance, _NOTED_BY_CALLER, False):
        _append(AuditAction.PASSWORD_CHANGE, actor, name)


def save_new_password(user: Any) -> None:
    """Save a password that was set, without an event: the caller's own event records it."""
    setattr(user, _NOTED_BY_CALLER, True)
    try:
        user.save(update_fields=["password"])
    finally:
        delattr(user, _NOTED_BY_CALLER)


@receiver(pre_delete, sender=User, dispatch_uid="audit.user_held")
def remember_held(sender: Any, instance: Any, **_: Any) -> None:
    flags = {flag: True for flag in _FLAGS if getattr(instance, flag)}
    groups, own = instance.groups.all(), instance.user_permissions.select_related("content_type")
    setattr(instance, _HELD, flags | _lists(groups=groups, permissions=own))


@receiver(post_delete, sender=User, dispatch_uid="audit.user_deleted")
def user_deleted(sender: Any, instance: Any, **_: Any) -> None:
    held: dict[str, Any] = getattr(instance, _HELD, {})
    _append(AuditAction.USER_DELETE, Actor.current(), instance.get_username(), AuditOutcome.OK, **held)


def _lists(**rows: Any) -> dict[str, Any]:
    """The names of rows, without empty lists."""
    return {key: names for key, found in rows.items() if (names := sorted(_name(row) for row in found))}


def _change(before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after}


# --- groups and permissions --------------------------------------------------------------------------------------------
@receiver(pre_save, sender=Group, dispatch_uid="audit.group_before")
def remember_group(sender: Any, instance: Group, **_: Any) -> None:
    setattr(instance, _BEFORE, Group.objects.filter(pk=instance.pk).values_list("name", flat=True).first())


@receiver(post_save, sender=Group, dispatch_uid="audit.group_saved")
def group_saved(sender: Any, instance: Group, created: bool, raw: bool = False, **_: Any) -> None:
    before = getattr(instance, _BEFORE, None)
    if raw or (not created and before == instance.name):
        return
    details: dict[str, Any] = {"group": "created"}
    if not created:
        details = {"group": "renamed", "changes": {"name": _change(before, instance.name)}}
    _append(AuditAction.PERMISSIONS_CHANGE, Actor.current(), f"group {instance.name}", AuditOutcome.OK, **details)


@receiver(pre_delete, sender=Group, dispatch_uid="audit.group_held")
def remember_held_of_group(sender: Any, instance: Group, **_: Any) -> None:
    own, members = instance.permissions.select_related("content_type"), User._default_manager.filter(groups=instance)
    setattr(instance, _HELD, _lists(permissions=own, members=members))


@receiver(post_delete, sender=Group, dispatch_uid="audit.group_deleted")
def group_deleted(sender: Any, instance: Group, **_: Any) -> None:
    details = {"group": "deleted", **getattr(instance, _HELD, {})}
    _append(AuditAction.PERMISSIONS_CHANGE, Actor.current(), f"group {instance.name}", AuditOutcome.OK, **details)


@receiver(m2m_changed, sender=User.groups.through, dispatch_uid="audit.user_groups")
@receiver(m2m_changed, sender=User.user_permissions.through, dispatch_uid="audit.user_permissions")
@receiver(m2m_changed, sender=Group.permissions.through, dispatch_uid="audit.group_permissions")
def permissions_changed(
    sender: Any, instance: Any, action: str, reverse: bool, model: Any, pk_set: set[Any] | None, **_: Any
) -> None:
    """`instance` gained or lost rows of `model`; with `reverse` it is the row that was gained or lost."""
    word = {"post_add": "added", "post_remove": "removed", "pre_clear": "cleared"}.get(action)
    if word is None or (word != "cleared" and not pk_set):
        return
    others = sorted(_name(other) for other in model._default_manager.filter(pk__in=pk_set or ()))
    _append(
        AuditAction.PERMISSIONS_CHANGE, Actor.current(), _name(instance), AuditOutcome.OK, **{word: others or ["all"]}
    )


def _name(row: Any) -> str:
    if isinstance(row, Permission):
        return f"{row.content_type.app_label}.{row.codename}"
    return f"group {row.name}" if isinstance(row, Group) else str(row.get_username())
