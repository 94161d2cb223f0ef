"""PostgreSQL connections in the pool of a process."""

from typing import Any

from psycopg import Connection, OperationalError
from psycopg_pool import ConnectionPool

#: what the pool sends to find out whether a connection still works
CHECK = ""


class PooledConnection(Connection[Any]):
    """Once one is found broken, the pool replaces all idle ones: a restart of the server broke them all. Otherwise a
    page would be given one after the other, with ever longer pauses in between, and none that works in time."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        try:
            return super().execute(query, params, **options)
        except OperationalError:
            pool = getattr(self, "_pool", None)  # set, as Django reads it, while the connection is checked out
            if query == CHECK and isinstance(pool, ConnectionPool):
                pool.drain()
            raise
