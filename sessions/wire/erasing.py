"""Removes what the recorded wire says of calls whose contents were erased. That there was a message stays."""

from collections.abc import Iterable
from uuid import UUID

from sessions.models import WireMessage


def forget_contents(call_uids: Iterable[UUID]) -> int:
    """In the current transaction. Returns the number of messages."""
    messages = WireMessage.objects.filter(call_uid__in=list(call_uids))
    return messages.update(body="", sealed=None, key_id="", uid=None, detail="")
