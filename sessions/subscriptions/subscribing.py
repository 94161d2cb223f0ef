"""Subscribing to a resource and unsubscribing: commands that are committed with their audit event before the worker is
woken.

Each verb raises access.Denied (recorded) without the permission `manage_subscription`, and AuditUnavailable if the
change was not durable within 2 s: then it has no effect. Do not call inside a transaction. `watches` has the worker's
part.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.db.models import F, Q
from django.utils import timezone

from servers import access, connect_limit, instance, limits, permissions
from servers.audit.record import SYSTEM, Actor, Event, ServerRef
from servers.audit.writer import AuditUnavailable, writer
from servers.commit_hooks import after_commit
from servers.enums import AuditAction, AuditOutcome
from servers.models import Server
from servers.secret import Secret
from servers.storable import storable
from servers.validators.characters import CONTROL
from sessions import hints
from sessions.connections import commands, lifecycle
from sessions.enums import Desired, SubscriptionState
from sessions.models import AgentFollow, McpSession, ResourceVersion, Subscription, SubscriptionGap, WebhookDelivery
from sessions.subscriptions import webhooks
from sessions.subscriptions.settings import Settings, host_of, new_secret, sealed
from sessions.subscriptions.trimming import delete_contents

__all__ = ["AuditUnavailable", "Changed", "Settings", "change", "delete", "send_test", "subscribe", "unsubscribe"]

DURABLE_SECONDS: Final = 2.0
#: PostgreSQL cannot index longer text
URI_BYTES: Final = 2_048
TITLE_CHARS: Final = 300
_PERMISSION = "manage_subscription"


@dataclass(frozen=True)
class Changed:
    """`fields`: names of the changed settings. `secret`: the webhook's new secret, shown only this once."""

    fields: tuple[str, ...] = ()
    secret: Secret | None = None


def subscribe(
    actor: Actor, user: Any, server: Server, uri: str, *, title: str = "", follower: AgentFollow | None = None
) -> Subscription:
    """The subscription of the user's identity to `uri`: a new one, a resumed one with its history, or the existing one.

    From now on it requests an open session. While the server is disabled or paused its state is *waiting*. Raises
    ValidationError for a URI that cannot be subscribed to, if the session has too many subscriptions, and for a user who
    needs a personal identity first. `follower`: an agent that follows the resource, written in the same transaction. A
    subscription created only for agents ends when no agent follows it any more, unless a person subscribes too.
    """
    permissions.require(user, actor, _PERMISSION, server, subject=uri[:300])
    _check_uri(uri)
    session = commands.session_for(user, server)
    order = partial(_subscribe, actor, session, uri, storable(title, TITLE_CHARS), follower)
    events = partial(_events, actor, AuditAction.SUBSCRIPTION_CREATE)
    try:
        row, _ = writer().submit_and_wait(order, events, DURABLE_SECONDS)
    except IntegrityError:  # another person subscribed at the same moment: now there is one
        row, _ = writer().submit_and_wait(order, events, DURABLE_SECONDS)
    return row


def unsubscribe(actor: Actor, user: Any, subscription: Subscription) -> bool:
    """End the subscription and keep its history. False if it had already ended."""
    permissions.require(user, actor, _PERMISSION, subscription.server, subject=subscription.uri[:300])
    order = partial(_unsubscribe, actor, subscription.pk)
    events = partial(_events, actor, AuditAction.SUBSCRIPTION_END)
    return writer().submit_and_wait(order, events, DURABLE_SECONDS)[1]


def end_unfollowed(subscription: Subscription, gone: Q) -> bool:
    """End a subscription that only agents had asked for, unless one still follows it. `gone`: which rows no longer
    count; they are deleted."""
    order = partial(_end_unfollowed, subscription.pk, gone)
    events = partial(_events, SYSTEM, AuditAction.SUBSCRIPTION_END)
    return writer().submit_and_wait(order, events, DURABLE_SECONDS)[1]


def delete(actor: Actor, user: Any, subscription: Subscription) -> bool:
    """Delete the subscription with its versions and their contents. False if it was already deleted."""
    permissions.require(user, actor, _PERMISSION, subscription.server, subject=subscription.uri[:300])
    order = partial(_delete, subscription.pk)
    events = partial(_events, actor, AuditAction.SUBSCRIPTION_DELETE)
    return writer().submit_and_wait(order, events, DURABLE_SECONDS)[1]


def change(
    actor: Actor, user: Any, subscription: Subscription, settings: Settings, *, renew_secret: bool = False
) -> Changed:
    """Set what differs from `subscription` as the caller read it: what another person saved since stays. A webhook with its
    first URL gets a signing secret, and removing the URL deletes the secret. `renew_secret` creates a new one. Its messages
    hold digests if `user` may read contents. Raises ValidationError by field."""
    permissions.require(user, actor, _PERMISSION, subscription.server, subject=subscription.uri[:300])
    settings.check()
    secret = new_secret()
    digests = access.may_read_payloads(user)
    order = partial(_change, subscription.pk, settings.differences(subscription), secret, renew_secret, digests)
    events = partial(_change_events, actor, subscription, settings)
    changed = tuple(writer().submit_and_wait(order, events, DURABLE_SECONDS))
    return Changed(changed, secret if "webhook_secret" in changed else None)


def send_test(actor: Actor, user: Any, subscription: Subscription) -> WebhookDelivery:
    """Have a worker send a `webhook.test` message within a few seconds. Raises ValidationError without a URL."""
    permissions.require(user, actor, _PERMISSION, subscription.server, subject=subscription.uri[:300])
    connect_limit.require(user, *connect_limit.WEBHOOKS)
    order = partial(_send_test, subscription.pk)
    test = partial(_event, actor, AuditAction.SUBSCRIPTION_CHANGE, subscription, {"webhook": "test sent"})
    return writer().submit_and_wait(order, lambda _: [test()], DURABLE_SECONDS)


# --- in the writer's transaction: each may run more than once ---------------------------------------------------------
_Written = tuple[Subscription, bool]  # the row, and whether it changed


def _subscribe(actor: Actor, session: McpSession, uri: str, title: str, follower: AgentFollow | None) -> _Written:
    key = {"server_id": session.server_id, "identity_id": session.identity_id, "uri": uri}
    found = Subscription.objects.filter(**key).first()
    if found is not None and follower is None:
        AgentFollow.objects.filter(subscription=found, made=True).update(made=False)
    if found is not None and found.active:
        _follow(found, follower, made=False)
        _notify(found, notify_worker=True)  # the worker is woken in any case
        return found, False
    if Subscription.objects.filter(identity_id=session.identity_id, active=True).count() >= limits.number(
        "subscriptions"
    ):
        raise ValidationError(f"Too many subscriptions. {limits.stated('subscriptions')} Unsubscribe from some first.")
    row = _created(actor, key, title) if found is None else _resumed(found)
    _follow(row, follower, made=True)
    _notify(row, notify_worker=True)
    return row, True


def _follow(row: Subscription, follower: AgentFollow | None, *, made: bool) -> None:
    """A session follows a resource once: what it followed before may have ended meanwhile. The row of an agent that
    left is reused for the next one: otherwise, agents that come and go would leave more and more rows."""
    if follower is None:
        return
    session = follower.session_id
    known = AgentFollow.objects.filter(session_id=session, subscription=row) if session else AgentFollow.objects.none()
    whose = {"session_id": session, "stream": follower.stream, "renewed_at": follower.renewed_at}
    left = AgentFollow.objects.filter(subscription=row, session=None, stream=None)
    if known.exists():
        taken = known
    elif (before := left.values_list("pk", flat=True).first()) is not None:
        taken = AgentFollow.objects.filter(pk=before)
        taken.update(uri=follower.uri, **whose)
    else:
        AgentFollow.objects.create(subscription=row, uri=follower.uri, made=made, **whose)
        return
    if made:
        taken.update(made=True)


def _created(actor: Actor, key: dict[str, Any], title: str) -> Subscription:
    now = timezone.now()
    by = {"created_by_id": actor.id, "created_by_name": actor.name}
    return Subscription.objects.create(**key, **by, title=title, created_at=now, state_since=now)


def _resumed(row: Subscription) -> Subscription:
    """Records the time in between as a gap, which the first read closes."""
    if row.newest and not row.gaps.filter(ended_at=None).exists():
        words = "Not subscribed during this time."
        SubscriptionGap.objects.create(subscription=row, began_at=row.state_since, reason=words)
    fields = {"active": True, "state": SubscriptionState.WAITING, "state_since": timezone.now(), "reason": ""}
    fields |= {"read_fault": "", "read_detail": ""}
    Subscription.objects.filter(pk=row.pk, active=False).update(version=F("version") + 1, **fields)
    return Subscription.objects.get(pk=row.pk)


def _unsubscribe(actor: Actor, pk: int) -> tuple[Subscription | None, bool]:
    return _end(pk, f"By {actor.name}.")


def _end_unfollowed(pk: int, gone: Q) -> tuple[Subscription | None, bool]:
    rows = AgentFollow.objects.filter(subscription_id=pk)
    made = rows.filter(gone, made=True).exists()  # otherwise a person has subscribed meanwhile
    rows.filter(gone).delete()
    if not made or rows.update(made=True):  # the remaining followers inherit it
        return None, False
    return _unsubscribe(SYSTEM, pk)


def _end(pk: int, reason: str) -> tuple[Subscription | None, bool]:
    now = timezone.now()
    fields = {"active": False, "state": SubscriptionState.ENDED, "state_since": now, "reason": reason}
    if not Subscription.objects.filter(pk=pk, active=True).update(version=F("version") + 1, **fields):
        return None, False
    row = Subscription.objects.get(pk=pk)
    SubscriptionGap.objects.filter(subscription=row, ended_at=None).update(ended_at=now)
    _notify(row)
    return row, True


def end_all(identity_id: int, reason: str) -> int:
    """End all subscriptions of an identity that is no longer used, in the caller's transaction. Their history is kept.
    Returns how many ended."""
    rows = list(Subscription.objects.filter(identity_id=identity_id, active=True).values_list("pk", flat=True))
    return sum(_end(pk, reason)[1] for pk in rows)


def _delete(pk: int) -> tuple[Subscription | None, bool]:
    row = Subscription.objects.filter(pk=pk).first()
    if row is None:
        return None, False
    contents = list(ResourceVersion.objects.filter(subscription=row).values_list("contents_id", flat=True))
    _notify(row)
    row.delete()
    delete_contents(contents)
    row.pk = pk  # for the audit event
    return row, True


def _change(pk: int, wanted: Mapping[str, Any], secret: Secret, renew: bool, digests: bool) -> dict[str, Any]:
    """The settings that changed, with their values before."""
    row = Subscription.objects.filter(pk=pk).first()
    if row is None:
        raise ValidationError("This subscription has been deleted.")
    changes = {name: value for name, value in wanted.items() if getattr(row, name) != value}
    url = changes.get("webhook_url", row.webhook_url)
    fields = changes | _secret_fields(row, url, secret, renew)
    if not fields:
        return {}
    if "webhook_url" in fields or "webhook_sealed" in fields:
        fields["webhook_digests"] = digests
    Subscription.objects.filter(pk=pk).update(version=F("version") + 1, **fields)
    if not url:
        webhooks.drop_waiting(row)
    _notify(Subscription.objects.get(pk=pk))
    before = {name: getattr(row, name) for name in changes}
    return before | ({"webhook_secret": None} if fields.get("webhook_sealed") else {})


def _secret_fields(row: Subscription, url: str, secret: Secret, renew: bool) -> dict[str, Any]:
    if not url:
        return {"webhook_sealed": None, "webhook_key_id": ""} if row.webhook_sealed else {}
    return sealed(row, secret) if renew or not row.webhook_sealed else {}


def _send_test(pk: int) -> WebhookDelivery:
    if instance.is_held():
        raise ValidationError(instance.ON_HOLD)
    row = Subscription.objects.filter(pk=pk).exclude(webhook_url="").first()
    if row is None:
        raise ValidationError("Enter the URL of the webhook and save it first.")
    now = timezone.now()
    delivery = WebhookDelivery.objects.create(
        subscription=row, number=webhooks.TEST, created_at=now, next_attempt_at=now
    )
    after_commit(hints.subscription_changed, row.uid, row.version)
    return delivery


# --- announcing
# --------------------------------------------------------------------------------------------------------
def _notify(row: Subscription, *, notify_worker: bool = False) -> None:
    """Make the session's worker look at its subscriptions. `notify_worker`: also request an open session, if its server
    is in service."""
    sessions = McpSession.objects.filter(server_id=row.server_id, identity_id=row.identity_id)
    sessions.update(watch_requested=F("watch_requested") + 1)
    closed = sessions.filter(lifecycle.IN_SERVICE, desired=Desired.CLOSED)
    if notify_worker and closed.update(desired=Desired.OPEN, version=F("version") + 1):
        lifecycle.unowned(sessions.values_list("pk", flat=True)[0])
    after_commit(_publish_hints, row.uid, row.version, row.server_id, row.identity_id)


def _publish_hints(uid: Any, version: int, server_id: int, identity_id: int) -> None:
    """Runs in the writer's thread after the commit: nothing here may wait."""
    hints.subscription_changed(uid, version)
    session = McpSession.objects.select_related("server").filter(server_id=server_id, identity_id=identity_id).first()
    if session is not None:
        hints.session_changed(session.server.uid, session.version)
        hints.later(partial(commands.wake_owner, session.uid))


def _events(actor: Actor, action: AuditAction, written: tuple[Subscription | None, bool]) -> list[Event]:
    row, changed = written
    return [_event(actor, action, row, {})] if changed and row is not None else []


def _change_events(actor: Actor, row: Subscription, settings: Settings, before: Mapping[str, Any]) -> list[Event]:
    if not before:
        return []
    changes = {
        name: {"before": _shown(name, old), "after": _shown(name, getattr(settings, name))}
        for name, old in before.items()
        if name != "webhook_secret"
    }
    details: dict[str, Any] = {"changes": changes} if changes else {}
    details |= {"webhook_secret": "set"} if "webhook_secret" in before else {}
    url = changes.get("webhook_url")
    if url is not None and url["before"] == url["after"]:
        details |= {"webhook_path": "replaced"}
    return [_event(actor, AuditAction.SUBSCRIPTION_CHANGE, row, details)]


def _shown(name: str, value: Any) -> Any:
    return host_of(value) if name == "webhook_url" and value else value


def _event(actor: Actor, action: AuditAction, row: Subscription, details: dict[str, Any]) -> Event:
    return Event(
        action=action,
        outcome=AuditOutcome.OK,
        actor=actor,
        server=ServerRef.of(row.server),
        identity_name=row.identity.name,
        subject=row.uri[:300],
        details={"subscription": str(row.uid), **details},
    )


# --- what may be subscribed to ------------------------------------------------------------------------------------------
def _check_uri(uri: str) -> None:
    if not uri or CONTROL.search(uri) or any("\ud800" <= char <= "\udfff" for char in uri):
        raise ValidationError("Invalid resource URI.")
    if len(uri.encode()) > URI_BYTES:
        raise ValidationError(
            f"A URI of more than {URI_BYTES:,} bytes cannot be subscribed to. This limit cannot be changed."
        )
