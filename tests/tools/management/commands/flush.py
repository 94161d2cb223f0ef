"""Empties the tables between tests. It overrides Django's command of the same name because `tests.tools` is an
installed app in tests.settings.

Permissions and content types follow from the models, so their rows stay. Django deletes them and then sends
`post_migrate` to recreate them, which takes ten times longer than the rest of the flush.
"""

from typing import Any

from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.color import no_style
from django.core.management.commands import flush
from django.db import connections

from servers.audit.proof import triggers

#: the full-text index
WITHOUT_MODEL = frozenset({"explorer_calls", "explorer_events"})
KEPT = {model._meta.db_table for model in (Permission, ContentType)}


class Command(flush.Command):
    help = "Deletes all rows but permissions and content types, and asks no question."

    def handle(self, **options: Any) -> None:
        connection = connections[options["database"]]
        names = connection.introspection.django_table_names(only_existing=True, include_views=False)
        statements = connection.ops.sql_flush(
            no_style(),
            [name for name in names if name not in KEPT],
            reset_sequences=options.get("reset_sequences", True),
            allow_cascade=options.get("allow_cascade", False),
        )
        triggers.drop(connection)  # they refuse to have audit events deleted
        connection.ops.execute_sql_flush(statements)
        triggers.create(connection)
        with connection.cursor() as cursor:
            for name in WITHOUT_MODEL.intersection(connection.introspection.table_names(cursor)):
                cursor.execute(f"DELETE FROM {name}")  # noqa: S608  # a name of our own
        ContentType.objects.clear_cache()  # the next database may use other primary keys for them
