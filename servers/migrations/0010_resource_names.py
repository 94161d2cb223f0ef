"""Resources without a title are listed by their name: what was stored before has it in its body only."""

import json

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

_KINDS = ("resource", "resource_template")
_AT_A_TIME = 200


def name_resources(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    definitions = apps.get_model("servers", "Definition").objects.using(editor.connection.alias)
    unnamed = list(definitions.filter(kind__in=_KINDS, title="").values_list("pk", flat=True))
    for start in range(0, len(unnamed), _AT_A_TIME):
        rows = list(definitions.filter(pk__in=unnamed[start : start + _AT_A_TIME]).only("pk", "title", "body"))
        for row in rows:
            row.title = _name(row.body)
        definitions.bulk_update(rows, ["title"])


def _name(body: str) -> str:
    """As listings are stored: NUL and lone surrogates, which PostgreSQL refuses, are replaced."""
    found = json.loads(body)
    name = found.get("name") if isinstance(found, dict) else None
    if not isinstance(name, str):
        return ""
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" or char == "\0" else char for char in name)


class Migration(migrations.Migration):
    dependencies = [("servers", "0009_private_ca")]

    operations = [migrations.RunPython(name_resources, migrations.RunPython.noop)]
