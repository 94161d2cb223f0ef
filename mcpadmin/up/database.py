"""The start-up steps that need Django: checks, migrations, key ring. Run by `manage.py prepare`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.checks import ERROR, run_checks
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, DatabaseError, OperationalError, connections, transaction
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor

from mcpadmin.checks import TAG
from mcpadmin.installation import document
from mcpadmin.setup import administrator_exists
from mcpadmin.up.options import StartProblem
from servers import instance
from servers.advisory_locks import AdvisoryLock
from servers.audit.proof import checkpoints, triggers
from servers.audit.proof.checkpoints import KeyReplaced
from servers.audit.proof.key import KeyMissing
from servers.audit.record import record_many
from servers.crypto import SealError, missing_keys, wrong_keys
from servers.keyring import KeySource, described, source

#: labels of the apps whose migrations are mcpadmin's own
_OWN = ("servers", "mcp_sessions")
_KEYRING_REMEDIES = {
    KeySource.FILE: "Restore the key ring file from your backup.",
    KeySource.ENVIRONMENT: "Correct MCPADMIN_KEYRING.",
    KeySource.COMMAND: "Correct MCPADMIN_KEYRING_COMMAND, or what it prints.",
}


def check_installation(data_dir: Path) -> list[str]:
    """Raise StartProblem for the first error of mcpadmin.checks. Close key files to other users. Returns the warnings."""
    found = run_checks(tags=[TAG])
    if problem := next((one for one in found if one.level >= ERROR), None):
        raise StartProblem(problem.msg, problem.hint or "")
    open_files = filter(None, map(_close, (data_dir / "secret_key", Path(settings.KEYRING_FILE))))
    return [*(f"{one.msg} {one.hint or ''}".strip() for one in found), *open_files]


def _close(path: Path) -> str:
    """Returns a warning if that is impossible: a container secret belongs to root, or is on a read-only mount. Then
    group access is accepted, because it is how we read the file."""
    if not path.exists() or not (mode := path.stat().st_mode & 0o777) & 0o077:
        return ""
    try:
        path.chmod(0o600)
    except OSError as problem:
        if mode & 0o007:
            return f"Other users have access to {path} (mode {mode:o}), and its mode cannot be changed ({problem.strerror})."
    return ""


def bring_up_to_date() -> int:
    """Apply pending migrations and return their number. Closes all connections afterwards. If an earlier start was
    ended before the steps that follow the migrations, they are repeated."""
    try:
        _refuse_other_encodings()
        with _one_at_a_time():
            executor = _executor()
            loader = executor.loader
            known = {*loader.disk_migrations, *(key for one in loader.disk_migrations.values() for key in one.replaces)}
            newer = sorted(key for key in loader.applied_migrations if key[0] in _OWN and key not in known)
            if newer:  # this code would write rows that it misreads, or fail on columns that it does not know
                raise StartProblem(
                    f"{_named()} was migrated by a newer version of mcpadmin ({newer[-1][1]})",
                    "Install that version, or restore the backup from before the upgrade.",
                )
            count = len(_plan(executor))
            if count or not triggers.complete(connections[DEFAULT_DB_ALIAS]):  # the last step, which may be missing
                call_command("migrate", interactive=False, verbosity=0)
        _check_keyring()
        with transaction.atomic():
            record_many(instance.check())
    except DatabaseError as problem:
        raise _unreachable(problem) from problem
    finally:
        connections.close_all()
    return count


def keyring_warnings() -> list[str]:
    """No reason to refuse: a person who has lost a key for good puts another one in its place."""
    try:
        wrong = wrong_keys()
    finally:
        connections.close_all()
    if not wrong:
        return []
    keys = ", ".join(wrong)
    return [
        f"What the database contains encrypted with key {keys} cannot be decrypted with the key of that name. {described()} may be that of another installation. {_KEYRING_REMEDIES[source()]}"
    ]


def checkpoint_warnings() -> list[str]:
    """A key that does not fit the log, as after a backup was restored without it, stops no call."""
    try:
        checkpoints.own_key()
    except KeyMissing as problem:
        return [f"No checkpoint of the audit log is signed. {problem} Restore it from your backup."]
    except KeyReplaced as problem:
        return [f"No checkpoint of the audit log is signed. {problem}"]
    finally:
        connections.close_all()
    return []


def _refuse_other_encodings() -> None:
    """jsonb refuses characters that the database cannot encode, so that sessions and changes would fail later."""
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_encoding")
        (encoding,) = cursor.fetchone()
    if encoding != "UTF8":
        raise StartProblem(
            f"the database has the encoding {encoding}, but mcpadmin needs UTF8",
            "Create it with: createdb --template=template0 --encoding=UTF8 NAME",
        )


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Several machines may start at once with one PostgreSQL: the second finds the work of the first done. A data
    directory, and so SQLite, has only one `up`."""
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [AdvisoryLock.MIGRATIONS.value])
    try:
        yield
    finally:
        if connection.is_usable():  # a session that has ended holds no lock
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [AdvisoryLock.MIGRATIONS.value])


def _executor() -> MigrationExecutor:
    return MigrationExecutor(connections[DEFAULT_DB_ALIAS])


def _plan(executor: MigrationExecutor) -> list[tuple[Migration, bool]]:
    return executor.migration_plan(executor.loader.graph.leaf_nodes())


def needs_administrator() -> bool:
    try:
        return not administrator_exists()
    finally:
        connections.close_all()


def why_held() -> str:
    """Return why workers open no session, or "" when they may."""
    try:
        row = instance.held()
        return "" if row is None else instance.reason(row.place, row.found)
    finally:
        connections.close_all()


def _check_keyring() -> None:
    remedy = _KEYRING_REMEDIES[source()]
    try:
        missing = missing_keys()
    except SealError as problem:
        raise StartProblem(str(problem)[:1].lower() + str(problem)[1:].rstrip("."), remedy) from problem
    if missing:
        keys = ", ".join(missing)
        raise StartProblem(
            f"the database contains secrets encrypted with key {keys}, which {described()[:1].lower()}{described()[1:]} lacks",
            f"{remedy} If the key is lost for good, {document('configuration.md')} (Keys) explains how to continue without these secrets.",
        )


def why_unusable(problem: DatabaseError) -> StartProblem | None:
    """Why a command failed in the database; None if the database is not the reason."""
    if isinstance(problem, OperationalError) and not _is_file():
        return _unreachable(problem)  # a second attempt would wait as long
    try:
        pending = _plan(_executor())
    except DatabaseError:
        return _unreachable(problem)
    finally:
        connections.close_all()
    if pending:
        return StartProblem(
            f"{_named()} has not been set up for this version of mcpadmin",
            "Start mcpadmin once, or set MCPADMIN_DATA_DIR and DATABASE_URL to those of the installation that you mean.",
        )
    return _unreachable(problem) if isinstance(problem, OperationalError) else None


def _unreachable(problem: DatabaseError) -> StartProblem:
    words = str(problem).strip().splitlines() or [type(problem).__name__]
    return StartProblem(
        f"{_named()} cannot be used ({words[0]})",
        "Check the disk and the file's owner, or restore a backup."
        if _is_file()
        else "Check DATABASE_URL, and that the database server is running and accepts this user.",
    )


def _is_file() -> bool:
    return str(settings.DATABASES[DEFAULT_DB_ALIAS]["ENGINE"]).endswith("sqlite3")


def _named() -> str:
    return f"the database {settings.DATABASES[DEFAULT_DB_ALIAS]['NAME']}" if _is_file() else "the database"
