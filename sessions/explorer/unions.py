"""The first keys of several queries in one statement: each part has its own limit, so that each is read along its own
index. With "column IN (…)" both databases would read and sort every row of all values before the first."""

from contextlib import suppress
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL


def first_keys(parts: list[QuerySet[Any]], count: int, *, ascending: bool = False, offset: int = 0) -> list[int]:
    """At most `count` keys of all parts together, in order. `offset`: of each part, so many are passed."""
    order = "pk" if ascending else "-pk"
    statements: list[str] = []
    values: list[Any] = []
    for part in parts:
        with suppress(EmptyResultSet):
            sql, given = part.order_by(order).values("pk")[offset : offset + count].query.sql_with_params()
            statements.append(f"SELECT * FROM ({sql}) part")  # noqa: S608  # the ORM's own SQL, with parameters
            values += given
    if not statements:
        return []
    with connection.cursor() as cursor:
        # Django refuses a LIMIT inside of a union on SQLite, which takes it in a sub-query.
        cursor.execute(" UNION ALL ".join(statements), values)
        found = sorted({int(row[0]) for row in cursor.fetchall()}, reverse=not ascending)
    return found[:count]


def key_at(keys: RawSQL) -> int | None:
    """The one key of such a sub-query, if there is one."""
    with connection.cursor() as cursor:
        cursor.execute(keys.sql, keys.params)
        row = cursor.fetchone()
    return None if row is None else int(row[0])
