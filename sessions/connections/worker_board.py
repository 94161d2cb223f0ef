"""The page *Sessions*: the workers with their sessions, and which sessions have no owner and why."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Case, Count, IntegerField, Q, QuerySet, Sum, Value, When

from servers import access, instance
from servers.enums import IdentityKind
from sessions.connections import commands
from sessions.connections.lifecycle import IN_SERVICE
from sessions.connections.process_page import CONFINEMENT, ISOLATION, RUNTIME_NOT_USED
from sessions.enums import CallState, Desired, SessionState
from sessions.models import Call, McpSession, Worker

#: per worker; sessions that are not ready come first
SHOWN = 100
_TROUBLE_FIRST = Case(When(state=SessionState.READY, then=Value(1)), default=Value(0), output_field=IntegerField())


@dataclass(frozen=True)
class SessionLine:
    session: McpSession
    in_flight: int
    why: str = ""

    @property
    def memory(self) -> int | None:
        return self.session.process.get("rss")


@dataclass(frozen=True)
class WorkerCard:
    worker: Worker
    alive: bool
    lines: list[SessionLine]
    held: int
    in_flight: int
    memory: int

    @property
    def more(self) -> int:
        return self.held - len(self.lines)

    @property
    def isolation(self) -> str:
        return ISOLATION.get(self.worker.isolation, "not known")

    @property
    def confinement(self) -> str:
        return CONFINEMENT.get(self.worker.confinement, "not known")

    @property
    def runtime_problem(self) -> str:
        """Why the container runtime that an operator named is not used."""
        before, mark, reason = self.worker.confinement_reason.partition(RUNTIME_NOT_USED)
        return reason.strip() if mark and not before else ""


@dataclass(frozen=True)
class Board:
    workers: list[WorkerCard]
    unowned: list[SessionLine]
    unowned_count: int

    @property
    def alive(self) -> int:
        return sum(card.alive for card in self.workers)

    @property
    def silent(self) -> int:
        return len(self.workers) - self.alive

    @property
    def held(self) -> int:
        return sum(card.held for card in self.workers)

    @property
    def in_flight(self) -> int:
        return sum(card.in_flight for card in self.workers)

    @property
    def memory(self) -> int:
        return sum(card.memory for card in self.workers)

    @property
    def unowned_more(self) -> int:
        return self.unowned_count - len(self.unowned)


def seen_sessions(user: access.User) -> QuerySet[McpSession]:
    """Shared sessions and the user's own; all sessions for those who see everyone's results."""
    personal, own = Q(identity__kind=IdentityKind.PERSONAL), Q(identity__user_id=user.pk)
    return McpSession.objects.filter(access.seen_of_people(user, personal, own))


def board(user: access.User) -> Board:
    """Sessions that this user may not see are neither listed nor counted."""
    flying, seen = _in_flight(), seen_sessions(user)
    free = seen.filter(IN_SERVICE, owner=None).filter(Q(desired=Desired.OPEN) | Q(paused=True))
    live, held = commands.live_workers(), instance.is_held()
    unowned = [_line(row, flying, _why(row, live, held)) for row in _read(free)]
    return Board(
        workers=[_card(worker, flying, seen.filter(owner=worker)) for worker in Worker.objects.order_by("node", "id")],
        unowned=unowned,
        unowned_count=free.count() if len(unowned) == SHOWN else len(unowned),
    )


def mark() -> str:
    """Differs whenever the board has changed: a page with the current mark is up to date. Heartbeats change it too,
    and bring the memory of the servers' processes with them."""
    workers = [
        (worker.pk, worker.heartbeat_at.timestamp(), worker.draining, commands.alive(worker))
        for worker in Worker.objects.order_by("pk")
    ]
    sessions = McpSession.objects.aggregate(count=Count("id"), versions=Sum("version"))
    running = Call.objects.filter(state=CallState.SENT).exclude(session=None).count()
    seen = (workers, sessions["count"], sessions["versions"], running, instance.is_held())
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


def _read(rows: QuerySet[McpSession]) -> Iterable[McpSession]:
    found = rows.select_related("server", "identity", "owner").order_by(_TROUBLE_FIRST, "server__name", "id")
    return found[:SHOWN]


def _card(worker: Worker, flying: Counter[int], rows: QuerySet[McpSession]) -> WorkerCard:
    held = list(rows.values_list("pk", "process__rss"))
    return WorkerCard(
        worker=worker,
        alive=commands.alive(worker),
        lines=[_line(row, flying) for row in _read(rows)],
        held=len(held),
        in_flight=sum(flying[pk] for pk, _ in held),
        memory=sum(rss or 0 for _, rss in held),
    )


def _line(session: McpSession, flying: Counter[int], why: str = "") -> SessionLine:
    return SessionLine(session, flying[session.pk], why)


def _in_flight() -> Counter[int]:
    running = Call.objects.filter(state=CallState.SENT).exclude(session=None)
    return Counter(dict(running.order_by().values_list("session_id").annotate(Count("id"))))


def _why(session: McpSession, live: list[Worker], held: bool) -> str:
    label = session.server.worker_label
    if session.paused:
        by = f" by {session.paused_by}" if session.paused_by else ""
        return f"Paused{by}. It opens when resumed."
    if held:
        return "This instance is on hold. An administrator must release it."
    if label and not any(label in worker.labels for worker in live):
        return f"No worker with label {label} is running."
    return "Not claimed by a worker yet." if live else "No worker is running."
