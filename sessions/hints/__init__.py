"""Messages between processes: hints to pages by topic, and wake-ups to workers.

Everything here is a hint: the database row is the truth, and every receiver of a hint reads the row again. So losing
Redis, or all of its content, costs time and never an event.

Topics   "audit", "servers", "server.<uid>", "call.<uid>", "log.<server uid>", "wire.<server uid>", "draft.<uid>",
         "inbox", "subscriptions", "subscription.<uid>", "sessions", "sign_ins", "own_sign_ins", "jobs",
         "bundle.<uid>", and "agent.<uid>", which is a session of an agent at its endpoint;
         a page may follow more (`live.topics`): each of those listens to a topic of this list.
         "users" is internal to web processes: a user's permissions or sign-in changed. So are "policies", what agents
         may do changed; "agent_sessions", some agent's session ended or changed; "agent_cancellations", an agent cancelled
         a request that has no row yet; and "lost", some process could not send its hints for a while, so every
         listener compares everything with the database.
Hints    publish(topic, seq, kind, rows): rows carry ids, progress, and log lines that an agent requested, never a
         result. All go to one group, several together, and each web process picks those that its pages listen to.
Wake-up  wake_worker(worker uid, verb, uid): {"v", "verb", "id", "expires", "session"}, several together, to the
         group worker.<worker uid>. Not through the broker: its queues cost a third of what a worker does for a call.

Nothing here may be called before the transaction that it reports is committed.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from sessions.hints.background_jobs import BackgroundJobs
from sessions.hints.listener import Listener
from sessions.hints.outage import outage
from sessions.hints.publisher import GROUP, LOST, PASSING, Publisher
from sessions.hints.wake import Verb, message, worker_group

AUDIT, SERVERS, USERS = "audit", "servers", "users"
INBOX, SUBSCRIPTIONS, SESSIONS = "inbox", "subscriptions", "sessions"
SIGN_INS, OWN_SIGN_INS = "sign_ins", "own_sign_ins"
JOBS = "jobs"
AGENT_SESSIONS = "agent_sessions"
AGENT_CANCELLATIONS = "agent_cancellations"
POLICIES = "policies"

__all__ = [
    "AGENT_CANCELLATIONS",
    "AGENT_SESSIONS",
    "AUDIT",
    "GROUP",
    "LOST",
    "POLICIES",
    "SESSIONS",
    "USERS",
    "Listener",
    "Verb",
    "agent_follows_changed",
    "agent_request_cancelled",
    "agent_session_changed",
    "agent_session_ended",
    "agent_stream_opened",
    "approval_changed",
    "bundle_changed",
    "call_asked",
    "call_changed",
    "call_logged",
    "call_of_server_changed",
    "call_progress",
    "draft_changed",
    "flush",
    "jobs_changed",
    "later",
    "lists_announced",
    "log_appended",
    "outage",
    "policies_changed",
    "publish",
    "question_changed",
    "send_inline",
    "session_changed",
    "sign_in_needed",
    "start",
    "subscription_changed",
    "tasks_changed",
    "user_changed",
    "visit_completed",
    "wake_worker",
    "wire_appended",
    "workers_changed",
]

_publisher = Publisher()
_background_jobs = BackgroundJobs()


def publish(
    topic: str, seq: int | None, kind: str, rows: list[dict[str, Any]] | None = None, *, deferred: bool = False
) -> None:
    """Notify every web process that `topic` changed. From any thread; never blocks, never raises. `deferred`: no one
    waits for it, so it may wait a few milliseconds for others."""
    _publisher.put({"t": topic, "seq": seq, "kind": kind, "rows": rows}, deferred=deferred)


def send_inline() -> float | None:
    """Send the hints that this thread queued, without a hand-over (Publisher.send_inline). For the audit
    writer's thread."""
    return _publisher.send_inline()


def start() -> None:
    """Start both threads now, so that the first call does not pay for them."""
    _publisher.start()
    _background_jobs.start()


def flush(seconds: float = 1.0) -> bool:
    """Wait for the hints and wake-ups put so far; False when that took longer."""
    return _publisher.flush(seconds)


def later(job: Callable[[], object]) -> None:
    """Run `job` (which reads rows, then wakes a worker) in a thread of its own. Bounded: when full, the worker's tick finds
    the row."""
    _background_jobs.put(job)


def wake_worker(
    worker_uid: UUID | str,
    verb: Verb,
    uid: UUID | str,
    expires: float | None = None,
    session: int = 0,
) -> None:
    """Have a worker look at a row. From any thread or loop; never blocks. `expires` is a Unix time, by default a minute
    from now; `session` is the key of the one that a call waits for."""
    _publisher.wake(worker_group(worker_uid), message(verb, uid, expires, session))


# --- the hints by name, so that both sides agree on their rows -------------------------------------------------------
def session_changed(server_uid: UUID | str, version: int | None = None, kind: str = "session") -> None:
    """A session, its registration (kind "session") or the lists of its server (kind "catalog") changed."""
    publish(f"server.{server_uid}", version, kind)
    publish(SERVERS, version, kind, [{"server": str(server_uid)}])


def lists_announced(server_uid: UUID | str, session_uid: UUID | str, lists: list[str]) -> None:
    """The server says that these lists changed, and they were read again without a difference."""
    publish(f"server.{server_uid}", None, "announced", [{"session": str(session_uid), "lists": lists}])


def tasks_changed(server_uid: UUID | str) -> None:
    """The server reported on a task, or it is still followed. The row of its call may stay as it is."""
    publish(f"server.{server_uid}", None, "tasks", deferred=True)


def call_changed(
    call_uid: UUID | str, version: int, server_uid: UUID | str | None = None, *, passing: bool = False
) -> None:
    """A call's row changed. With `server_uid` the pages of that server are notified too. `passing`: the next change is
    expected at once, so no one needs to look yet."""
    publish(f"call.{call_uid}", version, "call", PASSING if passing else None, deferred=passing)
    if server_uid is not None:
        call_of_server_changed(call_uid, server_uid)


def call_of_server_changed(call_uid: UUID | str, server_uid: UUID | str) -> None:
    """For the pages that list the calls of a server. A new call needs no other hint: no page can show it yet."""
    publish(f"server.{server_uid}", None, "call", [{"call": str(call_uid)}], deferred=True)


def call_progress(call_uid: UUID | str, progress: float | None, total: float | None, message: str | None) -> None:
    """Lossy: only the newest counts. `progress` is None for a task that reports text only."""
    publish(
        f"call.{call_uid}", None, "progress", [{"progress": progress, "total": total, "message": (message or "")[:500]}]
    )


def call_logged(call_uid: UUID | str, line: dict[str, Any]) -> None:
    """A log line of a call whose agent requested it: `level`, `logger`, and `text`, which is JSON text if `json`.
    Lossy; the server's log has every line. Without secrets, as the log has it."""
    publish(f"call.{call_uid}", None, "log", [line])


def visit_completed(elicitation_id: str, call_uid: UUID | str, server_uid: UUID | str, *, call_over: bool) -> None:
    """The server reports the end of a visit that it asked for in a call of an agent: for the stream of the call, or when
    that is over for the one of the agent's session. Lossy."""
    topic = f"server.{server_uid}" if call_over else f"call.{call_uid}"
    publish(topic, None, "visit", [{"elicitation": elicitation_id, "call": str(call_uid)}])


def question_changed(
    question_uid: UUID | str, version: int, call_uid: UUID | str | None = None, server_uid: UUID | str | None = None
) -> None:
    """An inbox item was added or changed. `call_uid`: the call that waits for it. The call's version stays the same and
    is not sent: pages would think that they already have the change."""
    publish(INBOX, None, "question", [{"question": str(question_uid), "version": version}])
    if call_uid is not None:
        publish(f"call.{call_uid}", None, "call")
        if server_uid is not None:
            publish(f"server.{server_uid}", None, "call", [{"call": str(call_uid)}])


def call_asked(call_uid: UUID | str) -> None:
    """A request of the server that may be for this call came, or is over. Its version is not sent, as above."""
    publish(f"call.{call_uid}", None, "call")


def approval_changed(approval_uid: UUID | str, call_uid: UUID | str) -> None:
    """A call waits for approval, or no longer does."""
    publish(INBOX, None, "approval", [{"approval": str(approval_uid)}])
    publish(f"call.{call_uid}", None, "call")


def policies_changed() -> None:
    publish(POLICIES, None, "policy")


def bundle_changed(bundle_uid: UUID | str) -> None:
    publish(f"bundle.{bundle_uid}", None, "bundle")


def agent_stream_opened(session_uid: UUID | str, stream: UUID | str, opened: float, *, post: bool = False) -> None:
    """A stream of an agent's session takes over from the older ones. `post`: only from POST streams."""
    publish(f"agent.{session_uid}", None, "stream", [{"post" if post else "stream": str(stream), "opened": opened}])


def agent_follows_changed(session_uid: UUID | str) -> None:
    """An agent's session follows another resource, or one less."""
    publish(f"agent.{session_uid}", None, "follows")
    agent_session_changed()


def agent_session_ended(session_uid: UUID | str) -> None:
    publish(f"agent.{session_uid}", None, "ended")
    agent_session_changed()


def agent_session_changed() -> None:
    """Something changed that the requests of some agent's session depend on."""
    publish(AGENT_SESSIONS, None, "session")


def agent_request_cancelled(request: str) -> None:
    """It has no row in which another web process would find this. `request`: see `ArrivingRequests`."""
    publish(AGENT_CANCELLATIONS, None, "cancelled", [{"request": request}])


def subscription_changed(subscription_uid: UUID | str, version: int, kind: str = "subscription") -> None:
    """A subscription's row (kind "subscription") or its history (kind "version") changed."""
    publish(f"subscription.{subscription_uid}", version, kind)
    publish(SUBSCRIPTIONS, None, kind, [{"subscription": str(subscription_uid)}])


def sign_in_needed(server_uid: UUID | str) -> None:
    """A session started waiting for a sign-in by anyone with permission, or by the owner of a personal session."""
    for topic in (SIGN_INS, OWN_SIGN_INS):
        publish(topic, None, "sign_in", [{"server": str(server_uid)}])


def workers_changed() -> None:
    """Load, heartbeat or sessions of some worker changed."""
    publish(SESSIONS, None, "workers")


def jobs_changed() -> None:
    """State or progress of some background job changed."""
    publish(JOBS, None, "job")


def log_appended(server_uid: UUID | str, seq: int) -> None:
    """`seq` is the newest line's."""
    publish(f"log.{server_uid}", seq, "line")


def wire_appended(server_uid: UUID | str, seq: int) -> None:
    """`seq` is the newest message's."""
    publish(f"wire.{server_uid}", seq, "message", deferred=True)


def draft_changed(draft_uid: UUID | str, version: int | None = None) -> None:
    publish(f"draft.{draft_uid}", version, "draft")


def user_changed(user_id: int | None, ended: str = "") -> None:
    """Password, activity or permissions of a user (None: of any user) changed: open sockets are checked again.

    `ended` is the fingerprint of a browser's session that is over: its sockets close at once.
    """
    publish(USERS, None, "user", [{"user": user_id, "ended": ended}])
