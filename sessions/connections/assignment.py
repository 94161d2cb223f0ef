"""Which free sessions a worker claims: those whose label it carries, and no more than its fair share of them.

`commands` chooses which worker to wake for a session that was just requested; that worker still claims it here.

One conditional UPDATE decides who gets a session. No session is taken from a live worker.
"""

import math
from collections import Counter
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from servers import instance
from servers.enums import IdentityKind
from sessions.connections import commands, lifecycle, timeline
from sessions.connections.lifecycle import IN_SERVICE, Lease
from sessions.enums import Desired, SessionCondition, SessionState
from sessions.models import McpSession, Worker
from sessions.models.worker import stale_before

CLAIM_LIMIT = 50
_CLAIMABLE = Q(desired=Desired.OPEN, paused=False, owner=None)


def claim_some(worker_id: int) -> list[Lease]:
    """Claim at most CLAIM_LIMIT of the desired sessions without an owner, in random order."""
    if instance.is_held():
        return []
    me = Worker.objects.get(pk=worker_id)
    claimed: list[Lease] = []
    for label, waiting in sorted(_waiting(me).items()):
        room = min(_share(me, label, waiting), CLAIM_LIMIT - len(claimed))
        free = _free().filter(server__worker_label=label).order_by("?")
        claimed += _claimed(list(free.values_list("pk", flat=True)[: max(0, room)]), me)
    return claimed


def claim_one(session_uid: UUID, worker_id: int) -> list[Lease]:
    """Claim this session, if it is desired and free and we carry its label."""
    if instance.is_held():
        return []
    me = Worker.objects.get(pk=worker_id)
    found = _free().filter(uid=session_uid, server__worker_label__in=_labels(me))
    return _claimed(list(found.values_list("pk", flat=True)), me)


def _labels(worker: Worker) -> list[str]:
    return ["", *worker.labels]


def _free() -> QuerySet[McpSession]:
    return McpSession.objects.filter(_CLAIMABLE, IN_SERVICE)


def _waiting(me: Worker) -> Counter[str]:
    """The number of free sessions for each label that this worker carries."""
    labels = _free().filter(server__worker_label__in=_labels(me)).values_list("server__worker_label", flat=True)
    return Counter(labels)


def _share(me: Worker, label: str, waiting: int) -> int:
    """How many more sessions bring this worker to the average of all workers that carry the label."""
    workers = {worker.pk for worker in commands.live_workers(label)} | {me.pk}
    count = len(workers)
    if me.started_at > stale_before():
        count = max(count, settings.WORKERS)  # workers that start at the same time get their share too
    owners = McpSession.objects.filter(owner__in=workers).values_list("owner_id", flat=True)
    held = Counter(owners)
    return math.ceil((waiting + held.total()) / count) - held[me.pk]


def _claimed(pks: list[int], me: Worker) -> list[Lease]:
    """Claim all in one UPDATE. Only the single writer of this process claims sessions for this worker, so those of
    `pks` that the worker owns afterwards are the ones that the UPDATE claimed."""
    # Each condition is on the row itself: PostgreSQL would not check it again inside a joined subquery.
    rows = McpSession.objects.filter(_CLAIMABLE, pk__in=pks)
    fields = {"state": SessionState.DISCONNECTED, "condition": SessionCondition.NONE, "state_since": timezone.now()}
    if not pks or not rows.update(owner_id=me.pk, epoch=F("epoch") + 1, version=F("version") + 1, **fields):
        return []
    taken = list(McpSession.objects.filter(pk__in=pks, owner_id=me.pk).select_related("server", "identity"))
    timeline.begin({session.pk: _taken(session, me) for session in taken})
    for session in taken:
        lifecycle.announce(session.server.uid)
    return [_lease(session, me) for session in taken]


def _taken(session: McpSession, me: Worker) -> timeline.TimelineEntry:
    return timeline.TimelineEntry(
        session.state, title="Taken", epoch=session.epoch, worker=me.node, detail=f"By {me.node}."
    )


def _lease(session: McpSession, me: Worker) -> Lease:
    return Lease(
        session_id=session.pk,
        session_uid=session.uid,
        server_id=session.server_id,
        server_uid=session.server.uid,
        server_name=session.server.name,
        identity_name=session.identity.name,
        worker_id=me.pk,
        worker_uid=me.uid,
        epoch=session.epoch,
        node=me.node,
        identity_id=session.identity_id,
        personal=session.identity.kind == IdentityKind.PERSONAL,
    )
