"""Messages to a worker: each only says "look at this row". A lost one costs at most one tick of the worker (3 s)."""

import time
from typing import Any, Literal
from uuid import UUID

Message = dict[str, Any]
Verb = Literal["call", "cancel", "session", "test", "answer", "authorize", "reap", "package", "sink", "client", "tasks"]
EXPIRES_SECONDS = 60.0


def worker_group(worker_uid: UUID | str) -> str:
    """The group that one worker listens to."""
    return f"worker.{worker_uid}"


def message(verb: Verb, uid: UUID | str, expires: float | None = None, session: int = 0) -> Message:
    """`session`: the primary key of the session that a call waits for."""
    until = expires or time.time() + EXPIRES_SECONDS
    return {"v": 1, "verb": verb, "id": str(uid), "expires": until, "session": session}
