"""Names of accounts. Two that differ only in case are the same name: people would think that they are one person, and
the sign-in would not know whose password to check."""

from django.db import IntegrityError, connection

from servers.accounts.authority import People
from servers.advisory_locks import AdvisoryLock, in_transaction
from servers.audit.record import SYSTEM


def is_taken(name: str) -> bool:
    """`name` as it is stored: Django's forms and `create_user` normalize it."""
    return bool(People.filter(username__iexact=name).exists())


def problem_of(name: str) -> str:
    """Why a new account cannot have this name; empty if it can."""
    if name.lower() == SYSTEM.name:
        return "The audit log uses this name for mcpadmin itself. Choose another one."
    return "A user with that username already exists." if is_taken(name) else ""


def require_free(name: str) -> None:
    """Call it in the transaction that saves the account: no other request can take the name meanwhile. Raises
    IntegrityError, as does the column, which compares only the exact spelling."""
    in_transaction(connection, AdvisoryLock.ACCOUNT_NAMES)
    if is_taken(name):
        raise IntegrityError("the name is taken")
