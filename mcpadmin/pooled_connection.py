"""Connections to PostgreSQL as the pool of a process keeps them."""

from typing import Any

from psycopg import Connection, OperationalError
from psycopg_pool import ConnectionPool

#: what the pool sends to find out whether a connection still works
CHECK = ""


class PooledConnection(Connection[Any]):
    """Once one is found broken, the pool replaces all that are idle: a restart of the server broke each. Otherwise a
    page would be given one after the other, with ever longer pauses in between, and none that works in time."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        try:
            return super().execute(query, params, **options)
        except OperationalError:
            pool = getattr(self, "_pool", None)  # as Django reads it: of one that is given out
            if query == CHECK and isinstance(pool, ConnectionPool):
                pool.drain()
            raise
