"""PostgreSQL in place of SQLite, for tests that run on both."""

from tests.servers.conftest import on_postgres

__all__ = ["on_postgres"]
