"""Celery tasks: thin adapters with explicit names. Opening and testing belong to the host's loop, so they hand over.

The sender gives `expires`; a lost or late task costs one tick, since the order stands in a row.
"""

from uuid import UUID

from celery import shared_task

from servers.domain.drafts import purge_drafts
from sessions.domain import retention
from sessions.host import current
from sessions.host.logs import trim_all


@shared_task(name="sessions.open")
def open_session(session_uid: str) -> None:
    """Claim the session if it is wanted and free, or look at its orders again."""
    current.hand_over("session", UUID(session_uid))


@shared_task(name="sessions.test")
def test_connection(draft_uid: str) -> None:
    current.hand_over("test", UUID(draft_uid))


@shared_task(name="sessions.authorize")
def authorize(sign_in_uid: str) -> None:
    """The next step of a person's sign-in at an authorization server."""
    current.hand_over("authorize", UUID(sign_in_uid))


@shared_task(name="sessions.housekeeping")
def housekeeping() -> None:
    """What only age makes due; two schedulers do no harm."""
    purge_drafts()
    trim_all()
    retention.trim_all()
