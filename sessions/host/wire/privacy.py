"""What the privacy settings of the instance do to a message before it is kept: masks by rule, schema and shape, encryption."""

import json
from typing import Any, Final

from servers.audit import payload_privacy
from servers.crypto import SealError, seal_bytes
from servers.enums import RedactedPart
from servers.privacy import redaction
from servers.privacy.redaction import Subject
from servers.randomness import random_uuid
from servers.schemas.secrets import may_hold_secret
from sessions.calls.claims import PendingCall
from sessions.host.wire.log import WireEntry
from sessions.mcp.core import methods
from sessions.models import WireMessage

_TABLE: Final = WireMessage._meta.db_table
_SCHEMAS: Final = {RedactedPart.ARGUMENTS: "inputSchema", RedactedPart.RESULT: "outputSchema"}


def subject_of(part: RedactedPart, server_id: int, target: str, call: PendingCall | None = None) -> Subject:
    """As of the payload that holds the same content."""
    schema: Any = None
    if call is not None and call.method == methods.TOOLS_CALL and may_hold_secret(call.definition):
        definition = json.loads(call.definition)
        schema = definition.get(_SCHEMAS.get(part, "")) if isinstance(definition, dict) else None
    return Subject(part, server_id, target, schema)


def give_body(entry: WireEntry, text: str, subject: Subject | None) -> None:
    """The body is left out where it cannot be searched, or cannot be encrypted although it should be."""
    now = payload_privacy.latest()
    masked = redaction.redacted_message(text, subject, now)
    if masked is None:
        return
    if not now.seal:
        entry.body = masked
        return
    entry.uid = random_uuid()
    try:
        entry.sealed, entry.key_id = seal_bytes(masked.encode(), table=_TABLE, uid=entry.uid, field="sealed")
    except SealError:
        entry.uid = None


def masked_words(text: str) -> str:
    """For an error's message."""
    return redaction.detected_in(text, payload_privacy.latest())
