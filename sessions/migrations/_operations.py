"""What several migrations do."""

from typing import Any


def configure_full_text(schema_editor: Any, values: dict[str, int]) -> None:
    """Options of FTS5's tables, which PostgreSQL does not have."""
    if schema_editor.connection.vendor != "sqlite":
        return
    for table in ("explorer_calls", "explorer_events"):
        for name, value in values.items():
            schema_editor.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('{name}', {value})")
