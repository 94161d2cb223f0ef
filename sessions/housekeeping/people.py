"""What refers to a person here: subscriptions, inbox items and saved calls, which are handed over or block a
deletion."""

from typing import Any

from django.db.models import F, QuerySet

from servers.accounts.belongings import Belonging
from servers.commit_hooks import after_commit
from servers.enums import IdentityKind
from servers.kit.words import format_count
from servers.models import Server
from sessions import hints
from sessions.calls import final_states
from sessions.enums import UNSENT, QuestionState
from sessions.inbox.questions import notify
from sessions.models import Call, Question, SavedCall, SavedView, Subscription


def belongings(user: Any, servers: QuerySet[Server]) -> list[Belonging]:
    found = []
    if number := _subscriptions(user).filter(server__in=servers).count():
        note = "They stay active without this person."
        found.append(Belonging(format_count(number, "shared subscription"), note, True, False))
    if number := _assigned(user).filter(server__in=servers).count():
        found.append(Belonging(format_count(number, "inbox item") + " assigned", "", True, True))
    own = Subscription.objects.filter(identity__user_id=user.pk, newest__gt=0, server__in=servers)
    if number := own.count():
        note = "Stored versions that only this person may read. Deleting these subscriptions deletes them."
        title = format_count(number, "personal subscription") + " with history"
        found.append(Belonging(title, note, False, True))
    return [*found, *_saved(user, servers)]


def _saved(user: Any, servers: QuerySet[Server]) -> list[Belonging]:
    """Names only the shared ones."""
    found = []
    rows = SavedCall.objects.filter(owner_id=user.pk, server__in=servers)
    if number := rows.filter(shared=False).count():
        found.append(
            Belonging(format_count(number, "private saved call"), "Deleted with the account.", False, False, ends=True)
        )
    if shared := tuple(rows.filter(shared=True).order_by("name").values_list("name", flat=True)):
        note = "They stay, without an owner."
        found.append(Belonging(format_count(len(shared), "shared saved call"), note, True, False, shared, ends=True))
    if number := SavedView.objects.filter(owner_id=user.pk).count():
        note = "Deleted with the account, shared ones too."
        found.append(Belonging(format_count(number, "saved view") + " of the explorer", note, False, False, ends=True))
    return found


def _subscriptions(user: Any) -> QuerySet[Subscription]:
    return Subscription.objects.filter(created_by_id=user.pk, active=True, identity__kind=IdentityKind.SHARED)


def _assigned(user: Any) -> QuerySet[Question]:
    """Open questions, except those of a personal session: only that person may answer them."""
    open_ones = Question.objects.filter(owner_id=user.pk, state=QuestionState.OPEN)
    return open_ones.exclude(session__identity__kind=IdentityKind.PERSONAL)


def hand_over(user: Any, to: Any) -> dict[str, int]:
    """Runs in the caller's transaction."""
    name = to.get_username()
    subscriptions = list(_subscriptions(user).values_list("pk", "uid"))
    rows = Subscription.objects.filter(pk__in=[pk for pk, _ in subscriptions])
    rows.update(created_by=to, created_by_name=name, version=F("version") + 1)
    for version, uid in rows.values_list("version", "uid"):
        after_commit(hints.subscription_changed, uid, version)
    questions = list(_assigned(user).values_list("pk", flat=True))
    open_ones = Question.objects.filter(pk__in=questions, state=QuestionState.OPEN)
    moved = open_ones.update(owner=to, owner_name=name[:150], version=F("version") + 1)
    for pk in questions:
        notify(pk)
    saved = SavedCall.objects.filter(owner_id=user.pk, shared=True).update(owner=to)
    return {"subscriptions": len(subscriptions), "inbox": moved, "saved_calls": saved}


def cancel_waiting_calls(user_id: int) -> None:
    """End the unsent calls of a person who was disabled."""
    waiting = list(Call.objects.filter(user_id=user_id, state__in=UNSENT).values_list("uid", flat=True))
    for start in range(0, len(waiting), final_states.BATCH):
        final_states.end(waiting[start : start + final_states.BATCH], final_states.USER_DISABLED_BEFORE)
