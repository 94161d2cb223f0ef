from django.db import migrations

from sessions.migrations._operations import configure_full_text

# FTS5 merges when 64 pages are written, and then hundreds of pages in the transaction that wrote the last of them: the
# retention held the database for up to 58 ms. sessions.explorer.fulltext.merge does it in small portions: four parts of one
# size become one. FTS5's own limit of 64 parts stays, for writes in bulk that do not merge.
APART = {"automerge": 0}
BEFORE = {"automerge": 16}


def merge_apart(apps, schema_editor):
    configure_full_text(schema_editor, APART)


def merge_as_before(apps, schema_editor):
    configure_full_text(schema_editor, BEFORE)


class Migration(migrations.Migration):
    dependencies = [("mcp_sessions", "0026_shared_calls_stay")]

    operations = [migrations.RunPython(merge_apart, merge_as_before)]
