"""A stream of rows, and what the conditions of streams share."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, ClassVar
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import BooleanField, Exists, F, Func, Model, Q, QuerySet
from django.db.models.expressions import RawSQL

from servers import access
from servers.enums import AuditAction
from servers.models import AuditEvent, Server
from sessions.explorer.fulltext import Match
from sessions.explorer.language import CHOICES, Query, Term, Value
from sessions.explorer.rows import Row

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


def literally(sql: str) -> Q:
    """A condition worded exactly like a partial index: with a parameter in it, SQLite would not use the index."""
    return Q(RawSQL(sql, [], output_field=BooleanField()))  # noqa: S611  # no input


def few(found: QuerySet[Any], column: str) -> list[Any] | None:
    keys = list(found.values_list(column, flat=True)[: ARMS + 1])
    return keys if len(keys) <= ARMS else None
