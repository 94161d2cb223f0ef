"""The two statements that every step of every session runs, in SQL. The ORM takes five times as long, and a thousand
sessions may open at once. Works on both databases; names come from our own models, values are parameters."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import connection

from sessions.models import ConnectionEvent, McpSession

_SESSION = McpSession._meta
_COLUMNS = {column.name: column for column in _SESSION.concrete_fields}


class Term(str):
    """An SQL expression over the row's old columns. Built only from constants and numbers."""

    __slots__ = ()


def change(key: tuple[int, int, int], states: Collection[str], fields: Mapping[str, Any]) -> bool:
    """Set `fields` and increment `version` if the row still has this (id, owner, epoch) and is in one of `states`, if
    any are given."""
    set_ = tuple((name, value if isinstance(value, Term) else "%s") for name, value in fields.items())
    values = [_prepared(name, value) for name, value in fields.items() if not isinstance(value, Term)]
    with connection.cursor() as cursor:
        cursor.execute(_update(set_, len(states)), [*values, *key, *map(str, states)])
        return bool(cursor.rowcount == 1)


class NewestEntry(NamedTuple):
    """The columns of a timeline row that decide how the next one is stored."""

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
    f"SELECT id, {', '.join(NewestEntry._fields[1:])} FROM {ConnectionEvent._meta.db_table}"  # noqa: S608  # see above
    " WHERE session_id = %s ORDER BY number DESC LIMIT 4"
)


def newest_lines(session_id: int) -> list[NewestEntry]:
    """Newest first, as many as the next line may depend on."""
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, [session_id])
        return [NewestEntry(*row) for row in cursor.fetchall()]


def _prepared(name: str, value: Any) -> Any:
    return _COLUMNS[name].get_db_prep_save(value, connection)


@lru_cache(256)
def _update(fields: tuple[tuple[str, str], ...], states: int) -> str:
    terms = [f'"{_COLUMNS[name].column}" = {term}' for name, term in fields]
    among = f" AND state IN ({', '.join(['%s'] * states)})" if states else ""
    return (
        f"UPDATE {_SESSION.db_table} SET {', '.join(terms)}, version = version + 1"  # noqa: S608  # see above
        f" WHERE id = %s AND owner_id = %s AND epoch = %s{among}"
    )
