"""What the page shows of the log's proof."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from servers.audit.proof import checkpoints, key, witnesses
from servers.audit.proof.key import KeyMissing
from servers.audit.proof.witnesses import State
from servers.enums import StatementKind
from servers.models import AuditEvent, Checkpoint

#: intervals without a checkpoint, although there are new events, after which the page warns
_LATE = 5


@dataclass(frozen=True)
class Proof:
    """`unsigned`: events after the newest checkpoint. `late`: they should have one by now. `begins`: the first event
    that still exists."""

    newest: Checkpoint | None
    unsigned: int
    late: bool
    begins: int
    cut_at: datetime | None
    witnesses: list[State]
    keys: list[str]
    problem: str

    @property
    def alone(self) -> bool:
        """Whether the only witness is the file, in the data directory."""
        inside = settings.CHECKPOINT_FILE.resolve().is_relative_to(settings.DATA_DIR)
        return inside and len(self.witnesses) == 1


def proof() -> Proof:
    newest = Checkpoint.objects.filter(kind=StatementKind.REGULAR).first()
    cut = Checkpoint.objects.filter(kind=StatementKind.CUT).first()
    unsigned = max(0, checkpoints.head()[0] - (newest.seq if newest is not None else 0))
    first = AuditEvent.objects.order_by("seq").values_list("seq", flat=True).first() or 0
    keys, problem = _keys()
    return Proof(
        newest=newest,
        unsigned=unsigned,
        late=unsigned > 0 and _is_late(newest),
        begins=first,
        cut_at=cut.at if cut is not None else None,
        witnesses=witnesses.states(),
        keys=keys,
        problem=problem,
    )


def _is_late(newest: Checkpoint | None) -> bool:
    """Judged by the oldest event without a checkpoint."""
    after = AuditEvent.objects.filter(seq__gt=newest.seq if newest is not None else 0).order_by("seq")
    since = after.values_list("at", flat=True).first()
    return since is not None and timezone.now() - since > timedelta(seconds=_LATE * settings.CHECKPOINT_SECONDS)


def _keys() -> tuple[list[str], str]:
    """The public keys, the current one first, or the reason that they cannot be read."""
    try:
        return [known.text for known in key.load().trusted], ""
    except KeyMissing as missing:
        return [], str(missing)
