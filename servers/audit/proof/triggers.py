"""Database triggers: no audit event can be changed, and only events that a cut covers can be deleted.

They stop mistakes and injected SQL. The owner of the database can drop them; the verification then says so, and the
signed checkpoints show what was changed. `migrate` drops them first and creates them at the end: SQLite recreates a
table that is altered, without its triggers.
"""

from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from servers.models import AuditEvent, Checkpoint

_EVENTS, _STATEMENTS = AuditEvent._meta.db_table, Checkpoint._meta.db_table
#: on SQLite, our connections have recursive_triggers on: INSERT OR REPLACE would otherwise delete without the second one
_ROWS = frozenset({"audit_event_unchanged", "audit_event_kept"})
_TRUNCATED = "audit_event_not_truncated"
_CUT = f"COALESCE((SELECT MAX(seq) FROM {_STATEMENTS} WHERE kind = 'cut'), 0)"  # noqa: S608  # names of our own models
_KEPT, _UNCHANGED = "audit events are only removed by a signed cut", "audit events are never changed"
_SQLITE = (
    f"CREATE TRIGGER audit_event_unchanged BEFORE UPDATE ON {_EVENTS} BEGIN SELECT RAISE(ABORT, '{_UNCHANGED}'); END",
    f"CREATE TRIGGER audit_event_kept BEFORE DELETE ON {_EVENTS} WHEN OLD.seq > {_CUT} "
    f"BEGIN SELECT RAISE(ABORT, '{_KEPT}'); END",
)
_POSTGRESQL = (
    f"CREATE OR REPLACE FUNCTION audit_event_guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    f"IF TG_OP = 'UPDATE' THEN RAISE EXCEPTION '{_UNCHANGED}' USING ERRCODE = 'integrity_constraint_violation'; END IF; "
    f"IF TG_OP = 'DELETE' THEN IF OLD.seq <= {_CUT} THEN RETURN OLD; END IF; END IF; "
    f"RAISE EXCEPTION '{_KEPT}' USING ERRCODE = 'integrity_constraint_violation'; END $$",
    f"CREATE TRIGGER audit_event_unchanged BEFORE UPDATE ON {_EVENTS} FOR EACH ROW EXECUTE FUNCTION audit_event_guard()",
    f"CREATE TRIGGER audit_event_kept BEFORE DELETE ON {_EVENTS} FOR EACH ROW EXECUTE FUNCTION audit_event_guard()",
    f"CREATE TRIGGER {_TRUNCATED} BEFORE TRUNCATE ON {_EVENTS} FOR EACH STATEMENT EXECUTE FUNCTION audit_event_guard()",
)


def create(connection: BaseDatabaseWrapper) -> None:
    """Create them if the tables exist; existing triggers are created again."""
    if not {_EVENTS, _STATEMENTS} <= set(connection.introspection.table_names()):
        return
    drop(connection)
    with connection.cursor() as cursor:
        for statement in _POSTGRESQL if connection.vendor == "postgresql" else _SQLITE:
            cursor.execute(statement)


def drop(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        for name in present(connection):
            cursor.execute(f"DROP TRIGGER {name}" + (f" ON {_EVENTS}" if connection.vendor == "postgresql" else ""))


def present(connection: BaseDatabaseWrapper) -> set[str]:
    """The names of the active triggers."""
    if connection.vendor == "postgresql":
        sql = "SELECT tgname FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal AND tgenabled = 'O'"
    else:
        sql = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s"
    with connection.cursor() as cursor:
        cursor.execute(sql, [_EVENTS])
        return {str(row[0]) for row in cursor.fetchall()} & (_ROWS | {_TRUNCATED})


def complete(connection: BaseDatabaseWrapper) -> bool:
    return present(connection) == (_ROWS | {_TRUNCATED} if connection.vendor == "postgresql" else _ROWS)


def before_migrations(sender: Any, using: str, **_: Any) -> None:
    drop(connections[using])


def after_migrations(sender: Any, using: str, **_: Any) -> None:
    create(connections[using])
