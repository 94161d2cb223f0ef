from django.db import migrations

# FTS5 merges when 64 pages are written, and then hundreds of pages in the transaction that wrote the last of them: the
# retention held the database for up to 58 ms. sessions.explorer.fulltext.merge does it in small portions: four parts of one
# size become one. FTS5's own limit of 64 parts stays, for writes in bulk that do not merge.
APART = {"automerge": 0}
BEFORE = {"automerge": 16}


def configure(schema_editor, values):
    if schema_editor.connection.vendor != "sqlite":
        return
    for table in ("explorer_calls", "explorer_events"):
        for name, value in values.items():
            schema_editor.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('{name}', {value})")


def merge_apart(apps, schema_editor):
    configure(schema_editor, APART)


def merge_as_before(apps, schema_editor):
    configure(schema_editor, BEFORE)


class Migration(migrations.Migration):
    dependencies = [("mcp_sessions", "0026_shared_calls_stay")]

    operations = [migrations.RunPython(merge_apart, merge_as_before)]
