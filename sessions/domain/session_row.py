"""The two statements that every step of every session costs, in SQL: through the ORM they cost five times as much, and
a thousand sessions open at once. For both databases; names are those of our own models, values are parameters."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import connection

from sessions.models import ConnectionEvent, McpSession

_SESSION = McpSession._meta


class Term(str):
    """A value that the database works out, of the row's columns as they were. Made of nothing but constants and numbers."""

    __slots__ = ()


def change(key: tuple[int, int, int], states: Collection[str], fields: Mapping[str, Any]) -> bool:
    """Set `fields` and raise `version`, if the row is still of this (id, owner, epoch), and in one of `states` when any
    are named."""
    set_ = tuple((name, value if isinstance(value, Term) else "%s") for name, value in fields.items())
    values = [_prepared(name, value) for name, value in fields.items() if not isinstance(value, Term)]
    with connection.cursor() as cursor:
        cursor.execute(_update(set_, len(states)), [*values, *key, *map(str, states)])
        return bool(cursor.rowcount == 1)


class Line(NamedTuple):
    """A line of a session's timeline, as far as the next one depends on it."""

    pk: int
    number: int
    state: str
    condition: str
    title: str
    attempt: int
    epoch: int
    worker: str
    fault: str
    step: str
    detail: str


_NEWEST = (
    f"SELECT id, {', '.join(Line._fields[1:])} FROM {ConnectionEvent._meta.db_table}"  # noqa: S608  # see above
    " WHERE session_id = %s ORDER BY number DESC LIMIT 4"
)


def newest_lines(session_id: int) -> list[Line]:
    """Newest first, as many as the next line may depend on."""
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, [session_id])
        return [Line(*row) for row in cursor.fetchall()]


def _prepared(name: str, value: Any) -> Any:
    return _SESSION.get_field(name).get_db_prep_save(value, connection)


@lru_cache(256)
def _update(fields: tuple[tuple[str, str], ...], states: int) -> str:
    terms = [f'"{_SESSION.get_field(name).column}" = {term}' for name, term in fields]
    among = f" AND state IN ({', '.join(['%s'] * states)})" if states else ""
    return (
        f"UPDATE {_SESSION.db_table} SET {', '.join(terms)}, version = version + 1"  # noqa: S608  # see above
        f" WHERE id = %s AND owner_id = %s AND epoch = %s{among}"
    )
