"""The words between processes: topics, hints, and the bell of a worker.

Everything here is a hint: the database row is the truth, and whoever hears a hint reads the row again. So losing
Redis, or all of its content, costs time and never an event.

Topics   "audit", "servers", "server.<uid>", "call.<uid>", "log.<server uid>", "draft.<uid>";
         "users" is internal to web processes: rights or sign-in of somebody changed. So is "lost": some process could
         not send its hints for a while, so whoever listens compares everything with the database.
Hints    publish(topic, seq, kind, rows): rows carry ids and progress only, never a result. All go to one group, several
         together, and each web process takes what its pages listen to.
Bell     ring_later(worker uid, verb, uid): {"v", "verb", "id", "epoch", "expires", "session"}, several together, to the
         group bell.<worker uid>. Not through the broker: its queues cost a third of what a worker does for a call.

Nothing here may be called before the transaction that it tells of is committed.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from sessions.bus.bell import Verb, bell_of, message
from sessions.bus.errands import Errands
from sessions.bus.listener import Listener
from sessions.bus.publisher import GROUP, LOST, Publisher

AUDIT, SERVERS, USERS = "audit", "servers", "users"
INBOX, SUBSCRIPTIONS, SESSIONS = "inbox", "subscriptions", "sessions"
SIGN_INS, OWN_SIGN_INS = "sign_ins", "own_sign_ins"

__all__ = [
    "AUDIT",
    "GROUP",
    "LOST",
    "SERVERS",
    "USERS",
    "Listener",
    "Verb",
    "bell_of",
    "call_changed",
    "call_progress",
    "draft_changed",
    "dropped",
    "flush",
    "later",
    "log_appended",
    "message",
    "publish",
    "ring_later",
    "session_changed",
    "start",
    "user_changed",
]

_publisher = Publisher()
_errands = Errands()


def publish(
    topic: str, seq: int | None, kind: str, rows: list[dict[str, Any]] | None = None, *, patient: bool = False
) -> None:
    """Tell every web process that `topic` moved. From any thread; never blocks, never raises. `patient`: nobody waits for
    it, so it may wait some milliseconds for others."""
    _publisher.put({"t": topic, "seq": seq, "kind": kind, "rows": rows}, patient=patient)


def start() -> None:
    """Start both threads now, so that the first call does not pay for them."""
    _publisher.start()
    _errands.start()


def flush(seconds: float = 1.0) -> bool:
    """Wait for the hints and rings put so far; False when that took longer."""
    return _publisher.flush(seconds)


def dropped() -> int:
    """Hints that this process gave up: the queue was full, or Redis did not take them in time."""
    return _publisher.dropped


def later(job: Callable[[], object]) -> None:
    """Run `job` (which reads rows and rings somebody) in a thread of its own. Bounded: when full, the worker's tick finds
    the row."""
    _errands.put(job)


def ring_later(
    worker_uid: UUID | str,
    verb: Verb,
    uid: UUID | str,
    epoch: int = 0,
    expires: float | None = None,
    session: int = 0,
) -> None:
    """Have a worker look at a row. From any thread or loop; never blocks. `expires` is a Unix time, by default a minute
    from now; `session` is the key of the one that a call waits for."""
    _publisher.ring(bell_of(worker_uid), message(verb, uid, epoch, expires, session))


# --- the hints by name, so that both sides agree on their rows -------------------------------------------------------
def session_changed(server_uid: UUID | str, version: int | None = None, kind: str = "session") -> None:
    """A session, its registration (kind "session") or the lists of its server (kind "catalog") changed."""
    publish(f"server.{server_uid}", version, kind)
    publish(SERVERS, version, kind, [{"server": str(server_uid)}])


def call_changed(
    call_uid: UUID | str, version: int, server_uid: UUID | str | None = None, *, passing: bool = False
) -> None:
    """A call's row changed. With `server_uid` the pages of that server hear of it too. `passing`: the next change is
    expected at once, so nobody needs to look yet."""
    publish(f"call.{call_uid}", version, "call", [{"passing": True}] if passing else None, patient=passing)
    if server_uid is not None:
        publish(f"server.{server_uid}", None, "call", [{"call": str(call_uid)}], patient=True)


def call_progress(call_uid: UUID | str, progress: float, total: float | None, message: str | None) -> None:
    """Lossy: only the newest counts."""
    publish(
        f"call.{call_uid}", None, "progress", [{"progress": progress, "total": total, "message": (message or "")[:500]}]
    )


def question_changed(
    question_uid: UUID | str, version: int, call_uid: UUID | str | None = None, server_uid: UUID | str | None = None
) -> None:
    """An item of the inbox came or changed. `call_uid`: the call that waits for it, whose own version stays as it is, so
    none is named: its pages would take the change for one that they have."""
    publish(INBOX, None, "question", [{"question": str(question_uid), "version": version}])
    if call_uid is not None:
        publish(f"call.{call_uid}", None, "call")
        if server_uid is not None:
            publish(f"server.{server_uid}", None, "call", [{"call": str(call_uid)}])


def subscription_changed(subscription_uid: UUID | str, version: int, kind: str = "subscription") -> None:
    """A subscription's row (kind "subscription") or its history (kind "version") changed."""
    publish(f"subscription.{subscription_uid}", version, kind)
    publish(SUBSCRIPTIONS, None, kind, [{"subscription": str(subscription_uid)}])


def sign_in_needed(server_uid: UUID | str) -> None:
    """A session began to wait for somebody who signs in: whoever may, or the one whose own it is."""
    for topic in (SIGN_INS, OWN_SIGN_INS):
        publish(topic, None, "sign_in", [{"server": str(server_uid)}])


def workers_changed() -> None:
    """Load, heartbeat or sessions of some worker changed."""
    publish(SESSIONS, None, "workers")


def log_appended(server_uid: UUID | str, seq: int) -> None:
    """`seq` is the newest line's."""
    publish(f"log.{server_uid}", seq, "line")


def draft_changed(draft_uid: UUID | str, version: int | None = None) -> None:
    publish(f"draft.{draft_uid}", version, "draft")


def user_changed(user_id: int | None, ended: str = "") -> None:
    """Password, activity or rights of a user (None: of anybody) changed: open sockets are judged again.

    `ended` is the fingerprint of a browser's session that is over: its sockets close at once.
    """
    publish(USERS, None, "user", [{"user": user_id, "ended": ended}])
