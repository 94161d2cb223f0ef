"""The database's part of the start: migrations, the key ring against what it sealed, whether an administrator exists."""

from django.conf import settings
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from mcpadmin.setup import administrator_exists
from mcpadmin.up.problems import StartProblem
from servers.crypto import SealError, missing_keys
from servers.keyring import described


def bring_up_to_date() -> int:
    """Apply what is unapplied; the number of migrations applied. The connection is closed afterwards."""
    try:
        count = len(unapplied())
        if count:
            call_command("migrate", interactive=False, verbosity=0)
        _check_keyring()
    except DatabaseError as problem:
        raise _unreachable(problem) from problem
    finally:
        connections.close_all()
    return count


def unapplied() -> list[object]:
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    return executor.migration_plan(executor.loader.graph.leaf_nodes())


def needs_administrator() -> bool:
    try:
        return not administrator_exists()
    finally:
        connections.close_all()


def _check_keyring() -> None:
    remedy = "Put the key ring file back from your backup."
    try:
        missing = missing_keys()
    except SealError as problem:
        raise StartProblem(str(problem)[:1].lower() + str(problem)[1:].rstrip("."), remedy) from problem
    if missing:
        keys = ", ".join(missing)
        raise StartProblem(
            f"the database holds secrets sealed with key {keys}, which {described()[:1].lower()}{described()[1:]} lacks",
            remedy,
        )


def _unreachable(problem: DatabaseError) -> StartProblem:
    words = str(problem).strip().splitlines() or [type(problem).__name__]
    if settings.DATABASES[DEFAULT_DB_ALIAS]["ENGINE"].endswith("sqlite3"):
        name = settings.DATABASES[DEFAULT_DB_ALIAS]["NAME"]
        return StartProblem(
            f"the database {name} cannot be used ({words[0]})",
            "Check the disk and the file's owner, or restore a backup.",
        )
    return StartProblem(
        f"the database does not work ({words[0]})",
        "Check DATABASE_URL, and that the server runs and lets this user in.",
    )
