"""The result of a verification of the log."""

from collections.abc import Callable
from dataclasses import dataclass

OnProgress = Callable[[int, int], None]


class Broken(Exception):
    """The log is broken from this event on."""

    def __init__(self, seq: int | None, reason: str) -> None:
        super().__init__(reason)
        self.seq = seq


@dataclass(frozen=True)
class ChainVerdict:
    """`first_bad_seq` is where the log is broken, None if it is not or no event is to blame; `reason` explains it for a
    page. `unknown`: the first damage that has not been acknowledged; the same one unless the caller passed acknowledged
    damage. `signed_seq`: the newest event that a signed checkpoint vouches for, 0 without one."""

    ok: bool
    checked: int
    first_bad_seq: int | None = None
    reason: str = ""
    signed_seq: int = 0
    warning: str = ""
    unknown: Broken | None = None
