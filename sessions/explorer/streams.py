"""The streams of rows that the explorer merges: calls, audit events that are not steps of a call, log lines, messages.

A stream is a table whose key rises with time. It is read in the order of its key, from an index that a condition of the
query picks (an *arm*), and never with OFFSET over rows. What a person may see is decided here, by `servers.access`
alone.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Any, ClassVar
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import BooleanField, Exists, F, Func, Model, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.lookups import Exact
from django.urls import reverse

from servers import access
from servers.audit import query as audit
from servers.enums import ActionSource, AuditAction, AuditOutcome
from servers.models import AuditEvent, Server
from servers.models.audit import CALL_STEPS
from sessions.calls import visibility
from sessions.enums import CallState, LogSource, WireDirection, WireKind
from sessions.explorer.fulltext import Match
from sessions.explorer.language import CHOICES, FREE_TEXT, RENAMED, USUAL, Query, Term, Value
from sessions.explorer.rows import Row
from sessions.mcp.core.methods import COMPLETE, PROMPTS_GET, RESOURCES_READ, TOOLS_CALL
from sessions.models import Call, LogLine, McpSession, WireMessage
from sessions.models.call import LARGE_BYTES, SLOW_MS, Head
from sessions.wire import reading as wire

#: outcome of the query language -> (words, tone of the kit)
OUTCOMES = {
    "ok": ("OK", "ok"),
    "error": ("Error", "bad"),
    "cancelled": ("Cancelled", "warn"),
    "unknown": ("Outcome unknown", "warn"),
    "not_sent": ("Not sent", "warn"),
    "denied": ("Denied", "viol"),
    "running": ("Running", "run"),
    "pending": ("Pending", ""),
}
OUTCOME_OF_STATE: dict[str, str] = {
    CallState.HELD: "running",
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
    AuditOutcome.PENDING: "pending",
}
_LEVELS = ("debug", "info", "notice")
#: kind of a call -> method
METHODS = {"tool": TOOLS_CALL, "resource": RESOURCES_READ, "prompt": PROMPTS_GET, "completion": COMPLETE}
KIND_OF_METHOD = {method: kind for kind, method in METHODS.items()}
CHOICES["outcome"] = {name: words for name, (words, _) in OUTCOMES.items()}
CHOICES["way"] = {way.value: str(way.label) for way in ActionSource if way != ActionSource.SCHEDULE}  # no row has it
CHOICES["status"] = {**dict(CallState.choices), **dict(AuditOutcome.choices)}
CHOICES["kind"] = {
    **{kind: kind.capitalize() for kind in METHODS},
    **{name: label for name, (label, _) in audit.GROUPS.items() if name != "calls"},
    **{source.value: str(source.label) for source in LogSource},
    **{kind.value: str(kind.label) for kind in WireKind},
    **{action.value: str(action.label) for action in AuditAction},
}
RENAMED["kind"] = audit.RENAMED
NOTHING = Q(pk__in=[])
#: a condition with more values than this is checked row by row
ARMS = 40


@dataclass(frozen=True)
class Arm:
    """`index` is a condition whose rows an index returns in the order of the key; `rest` is checked row by row."""

    index: Q
    rest: Q = Q()


class Plain(Func):
    """A column that keeps SQLite from choosing another index than the arm's: without statistics, it would take any of
    them."""

    template = "%(expressions)s"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="+%(expressions)s", **extra)


def plain(*columns: str) -> dict[str, Plain]:
    return {f"plain_{column}": Plain(F(column)) for column in columns}


class Stream(ABC):
    name: ClassVar[str]
    label: ClassVar[str]
    model: ClassVar[type[Model]]
    #: column with the time of a row
    at: ClassVar[str]
    #: what its rows, and so all its indexes, have in common
    index: ClassVar[Q] = Q()
    #: columns of conditions
    columns: ClassVar[Sequence[str]]
    #: column with the exact outcome
    outcome: ClassVar[str]
    #: facet -> column
    facets: ClassVar[Mapping[str, str]]
    #: column that refers to a row's server, and the server field that it contains, if `facets` has the name that the
    #: server had at the time
    server_then: ClassVar[tuple[str, str] | None] = None

    @abstractmethod
    def visible(self, user: access.User) -> QuerySet[Any] | None:
        """The rows that this person may see; None if they may see none of the stream."""

    @abstractmethod
    def condition(self, term: Term) -> Q:
        """The condition of a term without its negation, over `plain_` columns. A field that the stream does not have
        matches no row."""

    def arms(self, term: Term) -> list[Arm] | None:
        """The same condition by index; None if no index fits."""
        return None

    @abstractmethod
    def row(self, user: access.User, found: Any) -> Row: ...

    @abstractmethod
    def outcome_of(self, exact: str) -> str:
        """The outcome of the query language, from the value of the column `outcome`."""

    def facet_value(self, facet: str, stored: str) -> tuple[str, str]:
        """The query value and the label for a stored value of the facet's column."""
        if facet == "outcome":
            outcome = self.outcome_of(stored)
            return outcome, OUTCOMES[outcome][0]
        return stored, CHOICES[facet].get(stored, stored) if facet in CHOICES else stored

    def rows(self, user: access.User, keys: Sequence[int]) -> list[Row]:
        return [self.row(user, item) for item in self.read(user, keys)]

    def read(self, user: access.User, keys: Sequence[int]) -> list[Any]:
        visible = self.visible(user)
        return [] if visible is None or not keys else list(visible.filter(among(keys)))

    def shown(self, query: Query) -> Q:
        """The rows that the query asks for with `own:`, which is not a condition on a column."""
        return NOTHING if only_own(query) else Q()

    def free_text(self, user: access.User, query: Query) -> Match | None:
        """None: free text is checked row by row, by `condition`."""
        return None


def present_names(field: str, keys: Sequence[Any], names: Sequence[str]) -> list[str]:
    """The current names of servers given by `pk` or `uid`: a query finds the rows of a renamed server by its current
    name. Deleted servers keep the name that they had."""
    known = [key if key is None or field == "pk" else UUID(str(key)) for key in keys]
    found = dict(Server.objects.filter(**{f"{field}__in": {*known} - {None}}).values_list(field, "name"))
    return [found.get(key, name) for key, name in zip(known, names, strict=True)]


def among(keys: Sequence[int]) -> Q:
    """Thousands of keys as one parameter."""
    if connection.vendor == "sqlite":
        return Q(pk__in=RawSQL("SELECT value FROM json_each(%s)", [json.dumps(list(keys))]))  # a parameter
    return Q(pk__in=RawSQL("SELECT unnest(%s::bigint[])", [list(keys)]))  # the same


def matching(column: str, value: Value) -> Q:
    """Compare a name, ignoring case."""
    if value.any_start and value.any_end:
        return Q(**{f"{column}__icontains": value.text})
    if value.any_end:
        return Q(**{f"{column}__istartswith": value.text}) if value.text else ~Q(**{column: ""})
    return Q(**{f"{column}__iendswith" if value.any_start else f"{column}__iexact": value.text})


def any_of(parts: list[Q]) -> Q:
    return reduce(or_, parts) if parts else NOTHING


def names(term: Term, *columns: str) -> Q:
    return any_of([matching(column, value) for value in term.values for column in columns])


def only_own(query: Query) -> bool:
    own = {value.text for term in query.of("own") for value in term.values}
    return "only" in own and "show" not in own


def texts(term: Term) -> list[str]:
    return [value.text for value in term.values]


def uids(term: Term) -> list[UUID]:
    found = []
    for text in texts(term):
        with suppress(ValueError):
            found.append(UUID(text))
    return found


def numbers(term: Term, column: str) -> Q:
    lookups = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
    return any_of(
        [Q(**{f"{column}__{lookups[value.comparison]}": value.number}) for value in term.values if value.comparison]
    )


def at_least(term: Term, least: int) -> bool:
    return all(value.comparison in (">", ">=") and (value.number or 0) >= least for value in term.values)


def exact_outcomes(term: Term, table: Mapping[str, str]) -> list[str]:
    wanted = {text.lower() for text in texts(term)}
    return [str(exact) for exact, group in table.items() if group in wanted]


def servers(term: Term) -> QuerySet[Server]:
    """By uid, slug or name. A slug, as used in links, means only that server, even if existing servers have it as their
    name."""
    named = any_of([_named(value) for value in term.values])
    return Server.objects.filter(named | Q(uid__in=uids(term))).order_by()


def _named(value: Value) -> Q:
    found = matching("name", value) | matching("slug", value)
    if not value.exact:
        return found
    return Q(slug=value.text) | (found & ~Q(Exists(Server.objects.filter(slug=value.text))))


#: how many deleted servers and accounts are looked up by name
_DELETED = 1_000


def deleted_servers(term: Term) -> list[UUID]:
    """By their former name, which the event of their deletion contains."""
    deletions = AuditEvent.objects.filter(action=AuditAction.SERVER_DELETE).order_by("-seq")
    found = deletions.values_list("server_name", "server_uid")[:_DELETED]
    return [uid for name, uid in found if uid and any(value.matches(name) for value in term.values)]


def deleted_accounts(term: Term) -> list[str]:
    """In their former spelling, which the event of their deletion contains."""
    deletions = AuditEvent.objects.filter(action=AuditAction.USER_DELETE).order_by("-seq")
    found = deletions.values_list("subject", flat=True)[:_DELETED]
    return [name for name in found if any(value.matches(name) for value in term.values)]


def accounts(term: Term) -> QuerySet[Any]:
    return get_user_model()._default_manager.filter(names(term, "username"))


def _literally(sql: str) -> Q:
    """A condition worded exactly like a partial index: with a parameter in it, SQLite would not use the index."""
    return Q(RawSQL(sql, [], output_field=BooleanField()))  # noqa: S611  # no input


def _few(found: QuerySet[Any], column: str) -> list[Any] | None:
    keys = list(found.values_list(column, flat=True)[: ARMS + 1])
    return keys if len(keys) <= ARMS else None


_SLOW = _literally(f'"mcp_sessions_call"."duration_ms" >= {SLOW_MS}')
_LARGE = _literally(f'"mcp_sessions_call"."total_bytes" >= {LARGE_BYTES}')


class Calls(Stream):
    name, label, model, at = "calls", "Calls", Call, "created_at"
    columns = (
        *("server_id", "server_name", "target", "user_id", "user_name", "identity_name", "way", "method", "state"),
        *("duration_ms", "total_bytes", "uid", "session_id", "personal", "created_at"),
    )

    outcome = "state"
    facets = {
        "outcome": "state",
        "server": "server_name",
        "tool": "target",
        "user": "user_name",
        "way": "way",
        "kind": "method",
    }
    server_then = ("server_id", "pk")

    def visible(self, user: access.User) -> QuerySet[Call] | None:
        if not access.may(user, "view"):
            return None
        seen = access.seen_of_people(user, Q(personal=True), Q(plain_user_id=user.pk))
        shown = ("uid", "created_at", "server_name", "target", "method", "user_name", "user_id", "way", "identity_name")
        counted = ("state", "duration_ms", "total_bytes", "preview", "server__uid", "server__name")
        rows = Call.objects.alias(**plain("user_id")).filter(seen)
        return rows.select_related("server").only(*shown, *counted)

    def shown(self, query: Query) -> Q:
        if only_own(query):
            return Q(plain_method=COMPLETE)
        too = query.of("own") or any("completion" in texts(term) for term in query.of("kind"))
        return Q() if too else ~Q(plain_method=COMPLETE)

    def condition(self, term: Term) -> Q:
        match term.field:
            case "server":
                gone = Q(names(term, "plain_server_name"), plain_server_id=None)
                return Q(plain_server_id__in=servers(term).values("pk")) | gone
            case "tool":
                return any_of(
                    [
                        Q(plain_target=value.text) if value.exact else matching("plain_target", value)
                        for value in term.values
                    ]
                )
            case "user":
                gone = Q(names(term, "plain_user_name"), plain_user_id=None)
                return Q(plain_user_id__in=accounts(term).values("pk")) | gone
            case "identity":
                return names(term, "plain_identity_name")
            case "way":
                return Q(plain_way__in=texts(term))
            case "outcome":
                return Q(plain_state__in=exact_outcomes(term, OUTCOME_OF_STATE))
            case "status":
                return Q(plain_state__in=texts(term))
            case "kind":
                return Q(plain_method__in=[METHODS.get(text, text) for text in texts(term)])
            case "duration":
                return numbers(term, "plain_duration_ms")
            case "size":
                return numbers(term, "plain_total_bytes")
            case "call":
                return Q(plain_uid__in=uids(term))
            case "session":
                return Q(session__uid__in=uids(term))
        return NOTHING

    def arms(self, term: Term) -> list[Arm] | None:
        match term.field:
            case "call":
                return [Arm(Q(uid=uid)) for uid in uids(term)]
            case "session":
                keys = McpSession.objects.filter(uid__in=uids(term)).values_list("pk", flat=True)
                return [Arm(Q(session_id=key)) for key in keys[:ARMS]]
            case "tool" if all(value.exact for value in term.values):
                return [Arm(Q(Exact(Head("target"), text[:120])), Q(plain_target=text)) for text in texts(term)]
            case "server":
                found = _few(servers(term), "pk")
                gone = Arm(Q(server_id=None), names(term, "plain_server_name"))
                return None if found is None else [*(Arm(Q(server_id=key)) for key in found), gone]
            case "user":
                found = _few(accounts(term), "pk")
                gone = Arm(Q(user_id=None), names(term, "plain_user_name"))
                return None if found is None else [*(Arm(Q(user_id=key)) for key in found), gone]
            case "duration" if at_least(term, SLOW_MS):
                return [Arm(_SLOW, numbers(term, "plain_duration_ms"))]
            case "size" if at_least(term, LARGE_BYTES):
                return [Arm(_LARGE, numbers(term, "plain_total_bytes"))]
            case "outcome":
                return [Arm(Q(state=state)) for state in exact_outcomes(term, OUTCOME_OF_STATE)]
            case "status":
                return [Arm(Q(state=state)) for state in texts(term)]
            case "way":
                return [Arm(Q(way=way)) for way in texts(term)]
            case "kind":
                return [Arm(Q(method=METHODS.get(text, text))) for text in texts(term)]
        return None

    def row(self, user: access.User, found: Call) -> Row:
        outcome = OUTCOME_OF_STATE.get(found.state, "")
        readable = visibility.may_read(user, found)
        return Row(
            stream=self.name,
            key=found.pk,
            at=found.created_at,
            server_uid=str(found.server.uid) if found.server else "",
            server_name=found.server_name,
            target=found.target[:300],
            kind=KIND_OF_METHOD.get(found.method, found.method),
            label=found.target[:300],
            who=found.user_name,
            way=found.way,
            identity=found.identity_name,
            outcome=outcome,
            status=found.state,
            status_label=CallState(found.state).label,
            tone=OUTCOMES[outcome][1],
            duration_ms=found.duration_ms,
            bytes=found.total_bytes,
            preview=found.preview if readable else "",
            url=reverse("calls:detail", args=[found.uid]),
            call_uid=str(found.uid),
            own=found.method == COMPLETE,
        )

    def outcome_of(self, exact: str) -> str:
        return OUTCOME_OF_STATE.get(exact, "unknown")

    def facet_value(self, facet: str, stored: str) -> tuple[str, str]:
        return super().facet_value(facet, KIND_OF_METHOD.get(stored, stored) if facet == "kind" else stored[:300])

    def free_text(self, user: access.User, query: Query) -> Match:
        found = [term for term in query.of(FREE_TEXT) if not term.negated]
        without = [term for term in query.of(FREE_TEXT) if term.negated]
        tags = [self._tags(term) for term in query.terms if term.field and not term.negated]
        return Match(
            texts=[term.values[0] for term in found],
            without=[term.values[0] for term in without],
            tags=[alternatives for alternatives in tags if alternatives],
            words=access.may_read_payloads(user),
            own=user.pk,
        )

    def _tags(self, term: Term) -> list[str]:
        """The tags of rows that can match; empty for a term without tags."""
        match term.field:
            case "outcome":
                return [tag(state) for state in exact_outcomes(term, OUTCOME_OF_STATE)] or ["none"]
            case "way" | "status":
                return [tag(text) for text in texts(term)]
            case "kind":
                return [tag(METHODS.get(text, text)) for text in texts(term)]
            case "server" if not deleted_servers(term):  # their calls keep the tag of a key that no longer exists
                found = _few(servers(term), "pk")
                return [] if not found else ["server0", *(f"server{key}" for key in found)]
        return []


@cache
def tag(word: str) -> str:
    return "is" + "".join(char for char in word if char.isascii() and char.isalnum())


_STEPS = ", ".join(f"'{step}'" for step in CALL_STEPS)
_NO_STEP = _literally(f'NOT ("servers_auditevent"."action" IN ({_STEPS}))')


class Events(Stream):
    """Without the steps of calls, which the timeline of their call shows. A query that names steps finds them in
    `Steps`."""

    name, label, model, at = "events", "Events", AuditEvent, "at"
    index = _NO_STEP
    columns = ("server_uid", "server_name", "subject", "actor_name", "identity_name", "outcome", "action", "way", "at")

    outcome = "outcome"
    facets = {"outcome": "outcome", "server": "server_name", "user": "actor_name", "way": "way", "kind": "action"}
    server_then = ("server_uid", "uid")

    def visible(self, user: access.User) -> QuerySet[AuditEvent] | None:
        if not access.may(user, "view_auditevent"):
            return None
        return access.audit_events(user).defer("body", "hash")

    def condition(self, term: Term) -> Q:
        match term.field:
            case "server":
                return Q(plain_server_uid__in=self._server_uids(term))
            case "tool":
                return names(term, "plain_subject")
            case "user":
                found = self._actors(term)
                return names(term, "plain_actor_name") if found is None else Q(plain_actor_name__in=found)
            case "identity":
                return names(term, "plain_identity_name")
            case "way":
                return Q(plain_way__in=texts(term))
            case "outcome":
                return Q(plain_outcome__in=exact_outcomes(term, _AUDITED))
            case "status":
                return Q(plain_outcome__in=texts(term))
            case "kind":
                return Q(plain_action__in=_actions(term))
            case "call":
                return Q(call_uid__in=uids(term))
        return NOTHING

    def arms(self, term: Term) -> list[Arm] | None:
        match term.field:
            case "call":
                return [Arm(Q(call_uid=uid)) for uid in uids(term)]
            case "server":
                found = self._server_uids(term)
                return [Arm(Q(server_uid=uid)) for uid in found] if len(found) <= ARMS else None
            case "user":
                actors = self._actors(term)
                return None if actors is None else [Arm(Q(actor_name=name)) for name in actors]
            case "kind":
                return [Arm(Q(action=action)) for action in _actions(term)]
            case "outcome":
                return [Arm(Q(outcome=outcome)) for outcome in exact_outcomes(term, _AUDITED)]
            case "status":
                return [Arm(Q(outcome=outcome)) for outcome in texts(term)]
        return None

    def _server_uids(self, term: Term) -> list[UUID]:
        return list({*servers(term).values_list("uid", flat=True), *deleted_servers(term), *uids(term)})

    def _actors(self, term: Term) -> list[str] | None:
        """The names, spelled as the accounts are or were; None if there are too many."""
        if not all(value.exact for value in term.values):
            return None
        found = _few(accounts(term), "username")
        return None if found is None else list({*found, *deleted_accounts(term), *texts(term)})

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
            way=found.way or "",
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

    def outcome_of(self, exact: str) -> str:
        return _AUDITED.get(exact, "unknown")  # the event was tampered with

    def facet_value(self, facet: str, stored: str) -> tuple[str, str]:
        grouped = facet == "kind" and stored not in CALL_STEPS
        return super().facet_value(facet, audit.group_of(stored) if grouped else stored)

    def free_text(self, user: access.User, query: Query) -> Match:
        found = query.of(FREE_TEXT)
        return Match(
            texts=[term.values[0] for term in found if not term.negated],
            without=[term.values[0] for term in found if term.negated],
        )


class Steps(Events):
    """For a query that names steps of calls: they are all that the log has of a call that retention removed. Few of the
    indexes contain them."""

    index = Q()

    def arms(self, term: Term) -> list[Arm] | None:
        return super().arms(term) if term.field in ("call", "kind") else None


def names_steps(query: Query) -> bool:
    kinds = (term for term in query.of("kind") if not term.negated)
    return any(text in CALL_STEPS for term in kinds for text in texts(term))


def _actions(term: Term) -> list[str]:
    """The actions of groups ("sign-in") and single actions ("account:session:sign_in")."""
    found: list[str] = []
    for text in texts(term):
        found += [str(action) for action in audit.actions_of(text)] if text in audit.GROUPS else [text]
    return found


class OfSessions(Stream):
    """Rows of the logs of sessions. Their pages show the session that the reader's own calls use."""

    def read(self, user: access.User, keys: Sequence[int]) -> list[Any]:
        found = super().read(user, keys)
        access.seen_by_each(user, [row.server for row in found])
        return found

    @staticmethod
    def shown_at(found: LogLine | WireMessage, name: str, *more: int) -> str:
        """Empty for a row of another session."""
        return reverse(name, args=[found.server.slug, *more]) if found.server.seen_as == found.identity_id else ""


class Logs(OfSessions):
    name, label, model, at = "logs", "Logs", LogLine, "at"
    columns = ("server_id", "source", "level", "text", "logger", "call_uid", "at")

    outcome = "level"
    facets = {"outcome": "level", "server": "server__name", "kind": "source"}

    def visible(self, user: access.User) -> QuerySet[LogLine] | None:
        if not access.may(user, "view"):
            return None
        seen = access.seen_of_people(user, Q(identity__isnull=False), Q(identity__user_id=user.pk))
        return LogLine.objects.filter(seen).select_related("server", "identity")

    def condition(self, term: Term) -> Q:
        match term.field:
            case "server":
                return Q(plain_server_id__in=servers(term).values("pk"))
            case "identity":
                return names(term, "identity__name")
            case "outcome":
                wanted = set(texts(term))
                ok = Q(plain_level__in=_LEVELS)
                return (ok if "ok" in wanted else NOTHING) | (~ok if "error" in wanted else NOTHING)
            case "kind":
                return Q(plain_source__in=texts(term))
            case "call":
                return Q(plain_call_uid__in=uids(term))
            case _ if term.field == FREE_TEXT:
                return Q(plain_text__icontains=term.values[0].text) | Q(plain_logger__icontains=term.values[0].text)
        return NOTHING

    def arms(self, term: Term) -> list[Arm] | None:
        found = _few(servers(term), "pk") if term.field == "server" else None
        return None if found is None else [Arm(Q(server_id=key)) for key in found]

    def row(self, user: access.User, found: LogLine) -> Row:
        source = LogSource(found.source)
        outcome = "ok" if found.level in _LEVELS else "error"
        return Row(
            stream=self.name,
            key=found.pk,
            at=found.at,
            server_uid=str(found.server.uid),
            server_name=found.server.name,
            target=found.logger,
            kind=found.source,
            label=str(source.label),
            who="",
            way="",
            identity=found.identity.name if found.identity else "",
            outcome=outcome,
            status=found.level,
            status_label=found.level.capitalize(),
            tone="" if outcome == "ok" else "warn" if found.level == "warning" else "bad",
            duration_ms=None,
            bytes=None,
            preview=found.text[:200],
            url=f"{page}?before={found.seq + 1}" if (page := self.shown_at(found, "servers:logs")) else "",
            call_uid=str(found.call_uid) if found.call_uid else "",
        )

    def outcome_of(self, exact: str) -> str:
        return "ok" if exact in _LEVELS else "error"


class Messages(OfSessions):
    """Recorded protocol messages, if the server's settings record them. They have many times more rows than the other
    streams, so a query must ask for this one."""

    name, label, model, at = "messages", "Messages", WireMessage, "at"
    columns = ("server_id", "method", "target", "kind", "call_uid", "fault", "duration_ms", "size", "at")

    outcome = "fault"
    facets = {"server": "server__name", "kind": "kind"}

    def visible(self, user: access.User) -> QuerySet[WireMessage] | None:
        if not access.may(user, "view"):
            return None
        return wire.messages(user).select_related("server", "identity").defer("body", "headers")

    def condition(self, term: Term) -> Q:
        match term.field:
            case "server":
                return Q(plain_server_id__in=servers(term).values("pk"))
            case "tool":
                return names(term, "plain_target")
            case "identity":
                return names(term, "identity__name")
            case "outcome":
                wanted, ok = set(texts(term)), Q(plain_fault="")
                return (ok if "ok" in wanted else NOTHING) | (~ok if "error" in wanted else NOTHING)
            case "status":
                return names(term, "plain_fault")
            case "kind":
                return Q(plain_kind__in=texts(term)) | names(term, "plain_method")
            case "duration":
                return numbers(term, "plain_duration_ms")
            case "size":
                return numbers(term, "plain_size")
            case "call":
                return Q(plain_call_uid__in=uids(term))
            case _ if term.field == FREE_TEXT:
                return Q(plain_method__icontains=term.values[0].text) | Q(plain_target__icontains=term.values[0].text)
        return NOTHING

    def arms(self, term: Term) -> list[Arm] | None:
        return [Arm(Q(call_uid=uid)) for uid in uids(term)] if term.field == "call" else None

    def row(self, user: access.User, found: WireMessage) -> Row:
        outcome = self.outcome_of(found.fault)
        return Row(
            stream=self.name,
            key=found.pk,
            at=found.at,
            server_uid=str(found.server.uid),
            server_name=found.server.name,
            target=found.target[:300],
            kind=found.kind,
            label=found.method or str(WireKind(found.kind).label),
            who="",
            way="",
            identity=found.identity.name if found.identity else "",
            outcome=outcome,
            status=found.fault or found.direction,
            status_label=found.fault or str(WireDirection(found.direction).label),
            tone="" if outcome == "ok" else "bad",
            duration_ms=None if found.duration_ms is None else round(found.duration_ms),
            bytes=found.size,
            preview=found.detail[:200] if wire.may_read(user, found) else "",
            url=self.shown_at(found, "servers:protocol_message", found.seq),
            call_uid=str(found.call_uid) if found.call_uid else "",
        )

    def outcome_of(self, exact: str) -> str:
        return "error" if exact else "ok"


STREAMS: dict[str, Stream] = {stream.name: stream for stream in (Calls(), Events(), Logs(), Messages())}
STEPS = Steps()


def chosen(query: Query) -> list[Stream]:
    """The streams that `query` reads."""
    found = [stream for name, stream in STREAMS.items() if name in (query.streams or USUAL)]
    return [STEPS if stream.name == Events.name and names_steps(query) else stream for stream in found]
