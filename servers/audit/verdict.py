"""What a verification of the log finds."""

from collections.abc import Callable
from dataclasses import dataclass

OnProgress = Callable[[int, int], None]


class Broken(Exception):
    """The log does not hold from this event on."""

    def __init__(self, seq: int | None, reason: str) -> None:
        super().__init__(reason)
        self.seq = seq


@dataclass(frozen=True)
class ChainVerdict:
    """`first_bad_seq` is where the log does not hold any more, None where no event is to blame; `reason` says it in words
    for a page. `unknown`: the first damage that nobody has acknowledged; that is the same one unless the caller knows of
    some. `signed_seq`: the newest event that a signed checkpoint vouches for, 0 without one."""

    ok: bool
    checked: int
    first_bad_seq: int | None = None
    reason: str = ""
    signed_seq: int = 0
    warning: str = ""
    unknown: Broken | None = None
