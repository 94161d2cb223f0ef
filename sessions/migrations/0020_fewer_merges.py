from django.db import migrations

from sessions.migrations._operations import configure_full_text

# Each transaction of the index adds a part to it. By default FTS5 merges four parts of one size to a larger one, and the
# transaction in which a merge is due takes up to five times as long as the others. With 16 a word is looked up in a few
# parts more, and each is merged half as often. Only when a level has 64 parts, all are merged at once.
MERGES = {"automerge": 16, "crisismerge": 64}
DEFAULTS = {"automerge": 4, "crisismerge": 16}


def merge_less(apps, schema_editor):
    configure_full_text(schema_editor, MERGES)


def merge_as_before(apps, schema_editor):
    configure_full_text(schema_editor, DEFAULTS)


class Migration(migrations.Migration):
    dependencies = [("mcp_sessions", "0019_agents_in_bundles")]

    operations = [migrations.RunPython(merge_less, merge_as_before)]
