"""The streams of rows that the explorer merges: calls, and audit events that are not a step of a call.

Each stream is a table whose primary key rises with time, read along that key and never with OFFSET. What a person may
see is decided here, by `servers.access` alone.
"""

from abc import ABC, abstractmethod
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, ClassVar

from django.db.models import Model, Q, QuerySet
from django.urls import reverse

from servers import access
from servers.audit import query as audit
from servers.enums import AuditOutcome
from servers.models import AuditEvent, Server
from sessions.calls import statements
from sessions.enums import CallState
from sessions.explorer.language import FREE_TEXT, Query, Term, Value
from sessions.explorer.rows import Row
from sessions.mcp.core.methods import COMPLETE, PROMPTS_GET, RESOURCES_READ, TOOLS_CALL
from sessions.models import Call

#: outcome of the query language -> (words, tone of the kit)
OUTCOMES = {
    "ok": ("OK", "ok"),
    "error": ("Error", "bad"),
    "cancelled": ("Cancelled", "warn"),
    "unknown": ("Outcome unknown", "warn"),
    "not_sent": ("Not sent", "warn"),
    "denied": ("Denied", "viol"),
    "running": ("Running", "run"),
}
_STATES: dict[str, str] = {
    CallState.REQUESTED: "running",
    CallState.SENT: "running",
    CallState.SUCCEEDED: "ok",
    CallState.TOOL_ERROR: "error",
    CallState.RPC_ERROR: "error",
    CallState.FAILED: "error",
    CallState.CANCELLED: "cancelled",
    CallState.OUTCOME_UNKNOWN: "unknown",
    CallState.NOT_SENT: "not_sent",
    CallState.REFUSED: "denied",
    CallState.EXPIRED: "not_sent",
}
_AUDITED: dict[str, str] = {
    AuditOutcome.OK: "ok",
    AuditOutcome.DENIED: "denied",
    AuditOutcome.FAILED: "error",
    AuditOutcome.TOOL_ERROR: "error",
    AuditOutcome.RPC_ERROR: "error",
    AuditOutcome.CANCELLED: "cancelled",
    AuditOutcome.UNKNOWN: "unknown",
    AuditOutcome.PENDING: "running",
}
#: kind of a call -> method
METHODS = {"tool": TOOLS_CALL, "resource": RESOURCES_READ, "prompt": PROMPTS_GET, "completion": COMPLETE}
_KINDS = {method: kind for kind, method in METHODS.items()}
NOTHING = Q(pk__in=[])


class Stream(ABC):
    name: ClassVar[str]
    label: ClassVar[str]
    model: ClassVar[type[Model]]
    #: column with the time of a row
    at: ClassVar[str]

    @abstractmethod
    def visible(self, user: access.User) -> QuerySet[Any] | None:
        """The rows that this person may see; None if they may see none of the stream."""

    @abstractmethod
    def condition(self, user: access.User, term: Term) -> Q:
        """Of a term without its negation. Whatever the stream's rows do not have matches none of them."""

    @abstractmethod
    def row(self, user: access.User, found: Any) -> Row: ...

    def select(self, user: access.User, query: Query) -> QuerySet[Any] | None:
        """The rows of `query` in no order; None if this person may see none of the stream."""
        rows = self.visible(user)
        if rows is None:
            return None
        for term in query.terms:
            found = self.condition(user, term)
            rows = rows.exclude(found) if term.negated else rows.filter(found)
        return rows.filter(**self.range(query))

    def range(self, query: Query) -> dict[str, datetime]:
        bounds = {f"{self.at}__gte": query.since, f"{self.at}__lt": query.until}
        return {lookup: moment for lookup, moment in bounds.items() if moment is not None}


def matching(column: str, value: Value) -> Q:
    """A name, without regard to case."""
    if value.any_start and value.any_end:
        return Q(**{f"{column}__icontains": value.text})
    if value.any_end:
        return Q(**{f"{column}__istartswith": value.text}) if value.text else ~Q(**{column: ""})
    return Q(**{f"{column}__iendswith" if value.any_start else f"{column}__iexact": value.text})


def any_of(parts: list[Q]) -> Q:
    return reduce(or_, parts) if parts else NOTHING


def _names(term: Term, *columns: str) -> Q:
    return any_of([matching(column, value) for value in term.values for column in columns])


def _servers(term: Term) -> QuerySet[Server]:
    """By name, slug or uid, as links say it."""
    found = _names(term, "name", "slug")
    uids = [uid for value in term.values if (uid := audit._uid(value.text))]
    return Server.objects.filter(found | Q(uid__in=uids))


def _numbers(term: Term, column: str) -> Q:
    lookups = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
    return any_of(
        [Q(**{f"{column}__{lookups[value.comparison]}": value.number}) for value in term.values if value.comparison]
    )


def _outcomes(term: Term, column: str, table: dict[str, str]) -> Q:
    wanted = {value.text.lower() for value in term.values}
    return Q(**{f"{column}__in": [exact for exact, group in table.items() if group in wanted]})


class Calls(Stream):
    name, label, model, at = "calls", "Calls", Call, "created_at"

    def visible(self, user: access.User) -> QuerySet[Call] | None:
        if not access.may(user, "view"):
            return None
        return Call.objects.filter(statements.seen(user)).select_related("server")

    def select(self, user: access.User, query: Query) -> QuerySet[Any] | None:
        rows = super().select(user, query)
        own = {value.text for term in query.of("own") for value in term.values}
        if rows is None or "show" in own:
            return rows
        return rows.filter(method=COMPLETE) if "only" in own else rows.exclude(method=COMPLETE)

    def condition(self, user: access.User, term: Term) -> Q:
        match term.field:
            case "server":
                return Q(server__in=_servers(term)) | Q(_names(term, "server_name"), server=None)
            case "tool":
                return _names(term, "target")
            case "user":
                return _names(term, "user_name")
            case "identity":
                return _names(term, "identity_name")
            case "outcome":
                return _outcomes(term, "state", _STATES)
            case "status":
                return Q(state__in=[value.text for value in term.values])
            case "kind":
                return Q(method__in=[METHODS.get(value.text, value.text) for value in term.values])
            case "call":
                return Q(uid__in=[uid for value in term.values if (uid := audit._uid(value.text))])
            case "session":
                return Q(session__uid__in=[uid for value in term.values if (uid := audit._uid(value.text))])
            case "own":
                return Q()
            case _ if term.field == FREE_TEXT:
                columns = ("target", "server_name", "user_name", "identity_name")
                return any_of([Q(**{f"{column}__icontains": term.values[0].text}) for column in columns])
        return NOTHING

    def row(self, user: access.User, found: Call) -> Row:
        outcome = _STATES.get(found.state, "")
        return Row(
            stream=self.name,
            key=found.pk,
            at=found.created_at,
            server_uid=str(found.server.uid) if found.server else "",
            server_name=found.server_name,
            target=found.target[:300],
            kind=_KINDS.get(found.method, found.method),
            label=found.target[:300],
            who=found.user_name,
            way="",
            identity=found.identity_name,
            outcome=outcome,
            status=found.state,
            status_label=CallState(found.state).label,
            tone=OUTCOMES[outcome][1],
            duration_ms=None if found.duration_ms is None else round(found.duration_ms),
            bytes=None,
            preview="",
            url=reverse("calls:detail", args=[found.uid]),
            call_uid=str(found.uid),
            own=found.method == COMPLETE,
        )


class Events(Stream):
    """Without the steps of calls, which unfold as the timeline of their call."""

    name, label, model, at = "events", "Events", AuditEvent, "at"

    def visible(self, user: access.User) -> QuerySet[AuditEvent] | None:
        if not access.may(user, "view_auditevent"):
            return None
        return access.audit_events(user).exclude(action__startswith="call:")

    def condition(self, user: access.User, term: Term) -> Q:
        match term.field:
            case "server":
                return Q(server_uid__in=_servers(term).values("uid")) | _names(term, "server_name")
            case "tool":
                return _names(term, "subject")
            case "user":
                return _names(term, "actor_name")
            case "identity":
                return _names(term, "identity_name")
            case "outcome":
                return _outcomes(term, "outcome", _AUDITED)
            case "status":
                return Q(outcome__in=[value.text for value in term.values])
            case "kind":
                return any_of([_kind(value.text) for value in term.values])
            case "call":
                return Q(call_uid__in=[uid for value in term.values if (uid := audit._uid(value.text))])
            case _ if term.field == FREE_TEXT:
                columns = ("subject", "server_name", "actor_name", "identity_name", "ip", "request_id")
                return any_of([Q(**{f"{column}__icontains": term.values[0].text}) for column in columns])
        return NOTHING

    def row(self, user: access.User, found: AuditEvent) -> Row:
        outcome = _AUDITED.get(found.outcome, "")
        return Row(
            stream=self.name,
            key=found.seq,
            at=found.at,
            server_uid=str(found.server_uid) if found.server_uid else "",
            server_name=found.server_name,
            target=found.subject,
            kind=audit.group_of(found.action),
            label=audit.action_word(found.action),
            who=found.actor_name,
            way="",
            identity=found.identity_name,
            outcome=outcome,
            status=found.outcome,
            status_label=audit.outcome_word(found.outcome),
            tone=audit.tone(found.outcome),
            duration_ms=None,
            bytes=None,
            preview="",
            url=reverse("audit:detail", args=[found.seq]),
            call_uid=str(found.call_uid) if found.call_uid else "",
        )


def _kind(text: str) -> Q:
    """A group ("sign-in") or one action ("account:session:sign_in")."""
    if text in audit.GROUPS:
        return Q(action__in=audit.actions_of(text))
    return Q(action=text)


STREAMS: dict[str, Stream] = {stream.name: stream for stream in (Calls(), Events())}


def chosen(user: access.User, query: Query) -> list[Stream]:
    """The streams that `query` reads."""
    return [stream for name, stream in STREAMS.items() if not query.streams or name in query.streams]
