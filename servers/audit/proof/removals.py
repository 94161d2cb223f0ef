"""Removals: the retention's signed leave to delete rows beside the log."""

from datetime import datetime
from typing import Literal

Rows = Literal["calls", "payloads"]


def allow(rows: Rows, before: datetime) -> None:
    """Sign that `rows` whose event of the request is older than `before` may be missing. Call it before they are deleted.

    Raises KeyMissing without the checkpoint key: then nothing may be deleted.
    """
    raise NotImplementedError
