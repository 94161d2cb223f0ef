"""Appending to the one hash chain. The only writer of AuditEvent and AuditHead.

A link's body names the hash of the link before it and is hashed itself, so that whatever is changed, removed, moved or
slipped in later breaks the chain at that place (see verify.py). The head row is locked as the last statement but two of
a transaction: everything else is written before, and PostgreSQL has checked the foreign keys, so that the one lock that
all writers share is held for the shortest time and never while waiting for another.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from servers.audit.command_line import at_command_line
from servers.enums import ActionSource, AuditAction, AuditOutcome
from servers.json.canonical import canonical, sha256
from servers.models import AuditEvent, AuditHead, Server
from servers.requests import client_address
from servers.signals import audit_recorded
from servers.sql import Fields, database, execute, execute_many, fetch
from servers.storable import storable

CHAIN = 1
#: 2: with `context`. Events of version 1 stay as they are and valid.
BODY_VERSION = 2
#: the request that this task of the web process handles; set by the middleware, read where signals carry no request
current_request: ContextVar[HttpRequest | None] = ContextVar("current_request", default=None)
_current_actor: ContextVar["Actor | None"] = ContextVar("current_actor", default=None)


@dataclass(frozen=True)
class Actor:
    """Who acts, and through which interface (an ActionSource value). `name` is kept when the account is deleted."""

    id: int | None
    name: str
    ip: str = ""
    request_id: str = ""
    way: str = ActionSource.PAGE

    @classmethod
    def of(cls, request: HttpRequest) -> "Actor":
        user = getattr(request, "user", None)
        return cls.of_user(user, client_ip(request), getattr(request, "request_id", ""))

    @classmethod
    def of_user(cls, user: Any, ip: str = "", request_id: str = "", way: str = ActionSource.PAGE) -> "Actor":
        """The actor for a signed-in user; for an anonymous visitor or None, an actor without id and name."""
        if user is None or not user.is_authenticated:
            return cls(None, "", ip, request_id, way)
        return cls(user.pk, user.get_username(), ip, request_id, way)

    @classmethod
    def current(cls) -> "Actor":
        """Who acts in the current block of `acting`, or the user of the current request; outside of both, the operator
        at the command line or the product itself."""
        if (actor := _current_actor.get()) is not None:
            return actor
        if (request := current_request.get()) is not None:
            return cls.of(request)
        return OPERATOR if at_command_line.get() else SYSTEM


#: the product itself: housekeeping, session hosts
SYSTEM = Actor(None, "mcpadmin", way=ActionSource.TASK)
#: the operator at the command line, where no account is named
OPERATOR = Actor(None, "mcpadmin", way=ActionSource.COMMAND)


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """Signals that carry no actor use this one."""
    token = _current_actor.set(actor)
    try:
        yield
    finally:
        _current_actor.reset(token)


@dataclass(frozen=True)
class ServerRef:
    uid: UUID
    name: str

    @classmethod
    def of(cls, server: Server) -> "ServerRef":
        return cls(server.uid, server.name)


@dataclass(frozen=True)
class Event:
    """`details` are shown as they are: never put a secret or a payload in; `digests` name payloads by their digest.

    `context` of a call's steps: session (uid), epoch, era, revision, bytes_in and bytes_out (of the arguments and the
    result), duration_ms, request_id (of the request at the server), traceparent (W3C), and the time that the step has in
    the call's row (created_at, sent_at or finished_at), by which the row is verified: the event gets its own time later.
    Values that are empty or None are left out.
    """

    action: AuditAction
    outcome: AuditOutcome
    actor: Actor
    server: ServerRef | None = None
    identity_name: str = ""
    subject: str = ""
    call_uid: UUID | None = None
    details: dict[str, Any] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)


def client_ip(request: HttpRequest) -> str:
    """As determined by the middleware, or from the request itself if no middleware ran."""
    if (known := getattr(request, "client_ip", None)) is not None:
        return str(known)
    peer = str(request.META.get("REMOTE_ADDR") or "")
    return client_address(peer, request.META.get("HTTP_X_FORWARDED_FOR", ""))


def record(event: Event) -> int:
    """Append one event in the current transaction, as its last statements. Returns its sequence number."""
    return record_many([event])[0]


def record_many(events: Sequence[Event]) -> range:
    """Append in the given order. Raises TransactionManagementError outside a transaction."""
    if not database().in_atomic_block:
        raise transaction.TransactionManagementError("an audit event is appended in the transaction of its act")
    if not events:
        return range(0)
    seq, prev = _locked_head()
    links = []
    for number, event in enumerate(events, seq + 1):
        link = _link(event, number, prev)
        links.append(link)
        prev = link["hash"]
    execute_many(_INSERT_EVENT, [_COLUMNS.of_columns(link) for link in links])
    execute(_MOVE_HEAD, [links[-1]["seq"], prev, CHAIN])
    seqs = range(seq + 1, seq + 1 + len(links))
    transaction.on_commit(partial(audit_recorded.send_robust, sender=AuditEvent, seqs=seqs), robust=True)
    return seqs


# --- one link -----------------------------------------------------------------------------------------------------
def _link(event: Event, seq: int, prev: str) -> dict[str, Any]:
    """The row of `event`: body, hash and the columns that project the body."""
    actor, server = event.actor, event.server
    columns = {
        "seq": seq,
        "at": timezone.now(),
        "action": str(event.action.value),
        "outcome": str(event.outcome.value),
        "actor_id": actor.id,
        "actor_name": storable(actor.name, 150),
        "server_uid": server.uid if server else None,
        "server_name": storable(server.name, 120) if server else "",
        "identity_name": storable(event.identity_name, 120),
        "subject": storable(event.subject, 300),
        "call_uid": event.call_uid,
        "ip": storable(actor.ip, 45),
        "request_id": storable(actor.request_id, 64),
        "way": str(actor.way),
    }
    context = {name: value for name, value in event.context.items() if value not in ("", None)}
    body = canonical(body_of(columns, prev, event.details, event.digests, context))
    return {**columns, "hash": sha256(body), "body": body}


def body_of(
    columns: dict[str, Any], prev: str, details: Any, digests: Any, context: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What is hashed. verify.py builds it again from a row's columns and compares. Without `context`: version 1."""
    server = {"uid": str(columns["server_uid"]), "name": columns["server_name"]} if columns["server_uid"] else None
    body = {
        "v": 1,
        "seq": columns["seq"],
        "prev": prev,
        "at": columns["at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "action": columns["action"],
        "outcome": columns["outcome"],
        "actor": {
            "id": columns["actor_id"],
            "name": columns["actor_name"],
            "ip": columns["ip"],
            "request_id": columns["request_id"],
        },
        "server": server,
        "identity": columns["identity_name"],
        "subject": columns["subject"],
        "call": str(columns["call_uid"]) if columns["call_uid"] else None,
        "details": details,
        "digests": digests,
    }
    if context is not None:
        body |= {"v": BODY_VERSION, "context": {**context, "way": columns["way"]}}
    return body


# --- SQL: through the ORM these three statements cost four times as much, on the path of every call -------------------
_FIELDS = [field for field in AuditEvent._meta.concrete_fields if field.column]
_COLUMNS = Fields(_FIELDS)
_EVENTS, _HEAD = AuditEvent._meta.db_table, AuditHead._meta.db_table
_INSERT_EVENT = "INSERT INTO {} ({}) VALUES ({})".format(  # noqa: S608  # names of our own models, no input
    _EVENTS, ", ".join(f'"{field.column}"' for field in _FIELDS), ", ".join(["%s"] * len(_FIELDS))
)
_READ_HEAD = f"SELECT seq, hash FROM {_HEAD} WHERE chain = {CHAIN}"  # noqa: S608  # the same
# Left to the commit, the check of a foreign key would wait there for the transaction that locks the row referred to, which
# waits for the head. Deferred again, because a caller may write on. All of it is one round trip.
_CHECK_AND_LOCK_HEAD = f"SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED; {_READ_HEAD} FOR UPDATE"
_FIRST_HEAD = f"INSERT INTO {_HEAD} (chain, seq, hash) VALUES (%s, 0, '') ON CONFLICT DO NOTHING"  # noqa: S608  # same
_MOVE_HEAD = f"UPDATE {_HEAD} SET seq = %s, hash = %s WHERE chain = %s"  # noqa: S608  # the same


def _locked_head() -> tuple[int, str]:
    """On SQLite the IMMEDIATE transaction is the lock; PostgreSQL locks the row. Raises IntegrityError if a row of the
    transaction refers to one that was deleted."""
    read = _lock_row if database().vendor == "postgresql" else partial(fetch, _READ_HEAD)
    found = read()
    if not found:
        execute(_FIRST_HEAD, [CHAIN])
        found = read()
    return int(found[0][0]), str(found[0][1])


def _lock_row() -> list[Any]:
    with database().cursor() as cursor:
        cursor.execute(_CHECK_AND_LOCK_HEAD)
        while cursor.description is None:  # the results of the first two statements
            cursor.nextset()
        return list(cursor.fetchall())
