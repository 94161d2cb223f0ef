"""Which free sessions a worker takes: those whose label it carries, and no more than its fair share of them.

A session goes to whoever is first by one conditional UPDATE. Nothing is taken from a worker that lives.
"""

import math
from collections import Counter
from uuid import UUID

from django.db.models import F, Q, QuerySet
from django.utils import timezone

from servers.enums import IdentityKind
from sessions.domain import commands, lifecycle, timeline
from sessions.domain.lifecycle import IN_SERVICE, Hold
from sessions.enums import Desired, SessionCondition, SessionState
from sessions.models import McpSession, Worker

CLAIM_LIMIT = 50
_WANTED = Q(desired=Desired.OPEN, paused=False, owner=None)


def claim_some(worker_id: int) -> list[Hold]:
    """At most CLAIM_LIMIT of the wanted sessions without owner, in random order."""
    me = Worker.objects.get(pk=worker_id)
    claimed: list[Hold] = []
    for label, waiting in sorted(_waiting(me).items()):
        room = min(_share(me, label, waiting), CLAIM_LIMIT) - len(claimed)
        free = _free().filter(server__worker_label=label).order_by("?")
        claimed += _claimed(list(free.values_list("pk", flat=True)[: max(0, room)]), me)
    return claimed


def claim_one(session_uid: UUID, worker_id: int) -> list[Hold]:
    """This session, if it is wanted and free and we carry its label."""
    me = Worker.objects.get(pk=worker_id)
    found = _free().filter(uid=session_uid, server__worker_label__in=_labels(me))
    return _claimed(list(found.values_list("pk", flat=True)), me)


def _labels(worker: Worker) -> list[str]:
    return ["", *worker.labels]


def _free() -> QuerySet[McpSession]:
    return McpSession.objects.filter(_WANTED, IN_SERVICE)


def _waiting(me: Worker) -> Counter[str]:
    """How many free sessions there are of each label that this worker carries."""
    labels = _free().filter(server__worker_label__in=_labels(me)).values_list("server__worker_label", flat=True)
    return Counter(labels)


def _share(me: Worker, label: str, waiting: int) -> int:
    """As many as bring this worker to the average of those that could hold them; the least loaded always gets some."""
    workers = {worker.pk for worker in commands.live_workers(label)} | {me.pk}
    owners = McpSession.objects.filter(owner__in=workers).values_list("owner_id", flat=True)
    held = Counter(owners)
    return math.ceil((waiting + held.total()) / len(workers)) - held[me.pk]


def _claimed(pks: list[int], me: Worker) -> list[Hold]:
    """All in one UPDATE. Only this process's one writer takes sessions for this worker: of those that were free a
    moment ago, the ones that are its own now are the ones that the UPDATE took."""
    # Each condition stands on the row itself: inside a joined sub-query PostgreSQL would not judge it again.
    rows = McpSession.objects.filter(_WANTED, pk__in=pks)
    fields = {"state": SessionState.DISCONNECTED, "condition": SessionCondition.NONE, "state_since": timezone.now()}
    if not pks or not rows.update(owner_id=me.pk, epoch=F("epoch") + 1, version=F("version") + 1, **fields):
        return []
    taken = list(McpSession.objects.filter(pk__in=pks, owner_id=me.pk).select_related("server", "identity"))
    timeline.begin({session.pk: _taken(session, me) for session in taken})
    for session in taken:
        lifecycle.announce(session.server.uid)
    return [_hold(session, me) for session in taken]


def _taken(session: McpSession, me: Worker) -> timeline.Entry:
    return timeline.Entry(session.state, title="Taken", epoch=session.epoch, worker=me.node, detail=f"By {me.node}.")


def _hold(session: McpSession, me: Worker) -> Hold:
    return Hold(
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
