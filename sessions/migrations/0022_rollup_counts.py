from django.db import migrations

# The calls of a thousand servers in a day are as many roll-ups as calls. SQLite reads them from this index alone, in half
# the time; without statistics it would prefer `rollups_by_time` to an index that begins with another column. PostgreSQL
# needs no such index: with a column that is counted in it, each update of a roll-up would write all indexes.
CREATE = """
CREATE INDEX rollups_calls_by_server ON mcp_sessions_callrollup
("by", level, start, server_uid, server_name, method, state, owner_id, calls) WHERE "by" = 'server'
"""
DROP = "DROP INDEX IF EXISTS rollups_calls_by_server"


def on_sqlite(statement):
    def execute(apps, schema_editor):
        if schema_editor.connection.vendor == "sqlite":
            schema_editor.execute(statement)

    return execute


class Migration(migrations.Migration):
    dependencies = [("mcp_sessions", "0021_approvals")]

    operations = [migrations.RunPython(on_sqlite(CREATE), on_sqlite(DROP))]
