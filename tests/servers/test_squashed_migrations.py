"""The squashed migrations produce the same database as all the original ones."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import connection

from tests.tools.releases import remove_everything, upgrade


def structure() -> dict[str, Any]:
    """Columns, indexes and constraints by table. Generated names differ in nothing but their hash."""
    found: dict[str, Any] = {}
    with connection.cursor() as cursor:
        tables = [table.name for table in connection.introspection.get_table_list(cursor)]
        for table in tables:
            if not table.startswith(("servers_", "mcp_sessions_", "explorer_")):
                continue
            columns = connection.introspection.get_table_description(cursor, table)
            constraints = connection.introspection.get_constraints(cursor, table)
            found[table] = (
                sorted(tuple(column[:8]) for column in columns),
                sorted(repr(sorted(one.items(), key=str)) for one in constraints.values()),
                _statements(cursor, table),
            )
    return found


def _statements(cursor: Any, table: str) -> list[str]:
    """What introspection does not tell: conditions, expressions, checks. Triggers are made after each migration."""
    if connection.vendor == "sqlite":
        cursor.execute(
            "SELECT sql FROM sqlite_master WHERE tbl_name = %s AND sql IS NOT NULL AND type <> 'trigger'", [table]
        )
        rows = [re.sub(r'\s+|"', "", row[0]) for row in cursor.fetchall()]
        # Columns may be in a different order, and the name of a re-created table is in quotes.
        return sorted("".join(sorted(row)) if row.startswith("CREATETABLE") else row for row in rows)
    cursor.execute("SELECT indexdef FROM pg_indexes WHERE tablename = %s", [table])
    indexes = [row[0] for row in cursor.fetchall()]
    cursor.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass", [table])
    return sorted([*indexes, *(row[0] for row in cursor.fetchall())])


def groups() -> dict[str, set[str]]:
    rows = Group.objects.prefetch_related("permissions")
    return {group.name: {permission.codename for permission in group.permissions.all()} for group in rows}


@pytest.mark.long
def test_a_new_database_equals_one_that_ran_every_migration(transactional_db: None) -> None:
    _start_over()  # earlier tests may have left the tables without the groups
    call_command("migrate", verbosity=0)
    new, first_groups = structure(), groups()
    assert first_groups
    _start_over()
    upgrade()
    upgraded = structure()
    assert new.keys() == upgraded.keys()
    for table, expected in upgraded.items():
        assert new[table] == expected, table
    assert groups() == first_groups


def _start_over() -> None:
    Group.objects.all().delete()
    remove_everything()
    assert structure() == {}
