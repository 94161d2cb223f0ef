from django.db import migrations

# Each transaction of the index adds a part to it. By default FTS5 merges four parts of one size to a larger one, and the
# transaction in which a merge is due takes up to five times as long as the others. With 16 a word is looked up in a few
# parts more, and each is merged half as often. Only when a level has 64 parts, all are merged at once.
MERGES = {"automerge": 16, "crisismerge": 64}
DEFAULTS = {"automerge": 4, "crisismerge": 16}


def configure(schema_editor, values):
    if schema_editor.connection.vendor != "sqlite":
        return
    for table in ("explorer_calls", "explorer_events"):
        for name, value in values.items():
            schema_editor.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('{name}', {value})")


def merge_less(apps, schema_editor):
    configure(schema_editor, MERGES)


def merge_as_before(apps, schema_editor):
    configure(schema_editor, DEFAULTS)


class Migration(migrations.Migration):
    dependencies = [("mcp_sessions", "0019_agents_in_bundles")]

    operations = [migrations.RunPython(merge_less, merge_as_before)]
