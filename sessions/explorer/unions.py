"""The first rows of several queries in one statement: each part has its own limit, so that each is read along its own
index. With "column IN (…)" both databases would read and sort every row of all values before returning the first."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from sessions.explorer.streams import among

#: the key, then the columns, times as the driver returns them
FoundRow = tuple[Any, ...]
FEW = 500


def first_rows(
    parts: list[QuerySet[Any]], columns: Sequence[str], count: int, *, ascending: bool = False, offset: int = 0
) -> list[FoundRow]:
    """At most `count` rows of all parts together, by key. `offset`: how many rows of each part are skipped."""
    order = "pk" if ascending else "-pk"
    if columns and len(parts) > 1 and count > FEW:
        # otherwise the columns of as many rows of each part would be read, and most of them dropped
        keys = [row[0] for row in first_rows(parts, (), count, ascending=ascending, offset=offset)]
        rows = parts[0].model._default_manager.filter(among(keys)).order_by(order)
        return list(rows.values_list("pk", *columns))
    statements: list[str] = []
    values: list[Any] = []
    for part in parts:
        with suppress(EmptyResultSet):
            rows = part.order_by(order).values("pk", *columns)[offset : offset + count]
            sql, given = rows.query.sql_with_params()
            statements.append(f"SELECT * FROM ({sql}) part")  # noqa: S608  # the ORM's own SQL, with parameters
            values += given
    if not statements:
        return []
    with connection.cursor() as cursor:
        # Django refuses a LIMIT inside a union on SQLite, which accepts it in a subquery.
        cursor.execute(" UNION ALL ".join(statements), values)
        found = cursor.fetchall()
    if len(statements) == 1:
        return found
    unique = {row[0]: row for row in found}
    return [unique[key] for key in sorted(unique, reverse=not ascending)[:count]]


def key_at(keys: RawSQL) -> int | None:
    """The single key of such a subquery, if any."""
    with connection.cursor() as cursor:
        cursor.execute(keys.sql, keys.params)
        row = cursor.fetchone()
    return None if row is None else int(row[0])
