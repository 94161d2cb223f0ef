"""Databases of older releases, in tests: migrations one by one, as an installation of that release runs them."""

from typing import Any

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

Targets = list[tuple[str, str]]


class OneByOne(MigrationLoader):
    """Without squashed migrations."""

    def load_disk(self) -> None:
        super().load_disk()
        found = self.disk_migrations.items()
        self.disk_migrations = {key: migration for key, migration in found if not migration.replaces}


def migrate_to(targets: Targets) -> Any:
    """The models as they are then."""
    executor = _executor()
    executor.migrate(targets)
    return executor.loader.project_state(targets).apps


def remove_everything() -> None:
    _executor().migrate([("mcp_sessions", None), ("servers", None)])


def upgrade() -> None:
    executor = _executor()
    executor.migrate(executor.loader.graph.leaf_nodes())


def _executor() -> MigrationExecutor:
    executor = MigrationExecutor(connection)
    executor.loader = OneByOne(connection)
    return executor
