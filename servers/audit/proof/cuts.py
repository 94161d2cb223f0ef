"""Cuts: the retention removes the oldest events and leaves a signed statement of what it removed."""

from dataclasses import dataclass

from servers.audit.record import SYSTEM, Actor


@dataclass(frozen=True)
class Cut:
    """Removed were the events `first` to `seq`, both included; `hash` is that of the last one. None: `removed` is 0."""

    first: int
    seq: int
    hash: str
    removed: int


def cut(before_seq: int, actor: Actor = SYSTEM) -> Cut:
    """Remove all events before `before_seq`, in transactions of at most 50 ms each, and record that as an event.

    Signed before the first event goes, so that an interruption leaves a chain that verifies; a second call with the
    same number finishes it. The head's event always stays. Not inside of `atomic()`. Raises AuditUnavailable when the
    database refuses, KeyMissing without the checkpoint key.
    """
    raise NotImplementedError
