"""Empties the tables between tests. It overrides Django's command of the same name because `tests.tools` is an
installed app in tests.settings.

Permissions and content types follow from the models, so their rows stay. Django deletes them and then sends
`post_migrate` to recreate them, which takes ten times longer than the rest of the flush.

Only tables that have rows are touched. Django truncates all of them on PostgreSQL, which makes a new file for each
table and each index: some six hundred a flush.
"""

from typing import Any

from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.color import no_style
from django.core.management.commands import flush
from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper

from servers.audit.proof import triggers

#: the full-text index
WITHOUT_MODEL = frozenset({"explorer_calls", "explorer_events"})
KEPT = {model._meta.db_table for model in (Permission, ContentType)}
#: Those that were used, of these tables. To truncate a table restarts its sequence, to delete its rows does not.
RESTART = """
SELECT setval(seqrelid::regclass, seqstart, false)
FROM pg_sequence JOIN pg_depend ON objid = seqrelid AND classid = 'pg_class'::regclass AND deptype IN ('a', 'i')
WHERE refobjid = ANY (%s::regclass[]) AND pg_sequence_last_value(seqrelid) IS NOT NULL
"""


class Command(flush.Command):
    help = "Deletes all rows but permissions and content types, and asks no question."

    def handle(self, **options: Any) -> None:
        connection = connections[options["database"]]
        existing = set(connection.introspection.table_names())
        names = sorted(existing & ({*connection.introspection.django_table_names()} - KEPT | WITHOUT_MODEL))
        rows = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {name})" for name in names)  # noqa: S608  # ours
        triggers.drop(connection)  # they refuse to have audit events deleted
        with transaction.atomic(options["database"]), connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                # Waits for transactions that still write, as TRUNCATE does. No foreign key looks at what is deleted.
                cursor.execute(f"LOCK TABLE {', '.join(names)} IN EXCLUSIVE MODE")
                cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute(rows)
            for (name,) in cursor.fetchall():
                cursor.execute(f"DELETE FROM {name}")  # noqa: S608  # a name of our own
            if options.get("reset_sequences", True):
                restart_sequences(cursor, names)
        triggers.create(connection)
        ContentType.objects.clear_cache()  # the next database may use other primary keys for them


def restart_sequences(cursor: CursorWrapper, names: list[str]) -> None:
    operations = cursor.db.ops
    if cursor.db.vendor == "postgresql":
        cursor.execute(RESTART, [names])
        return
    for statement in operations.sequence_reset_by_name_sql(no_style(), [{"table": name} for name in names]):
        cursor.execute(statement)
