"""What the privacy settings of the instance do to a message before it is kept: masks by rule, schema and shape, encryption."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import structlog

from servers.audit import payload_privacy
from servers.crypto import SealError, seal_together
from servers.enums import RedactedPart
from servers.privacy import redaction
from servers.privacy.redaction import Subject
from servers.randomness import random_uuid
from servers.schemas.secrets import may_hold_secret
from servers.storable import storable
from sessions.calls.claims import PendingCall
from sessions.host.wire.log import WireEntry
from sessions.mcp.core import methods
from sessions.models import WireMessage

log = structlog.get_logger(__name__)
_TABLE: Final = WireMessage._meta.db_table
_NOT_STORED: Final = "The content could not be encrypted, so it was not stored."
_SCHEMAS: Final = {RedactedPart.ARGUMENTS: "inputSchema", RedactedPart.RESULT: "outputSchema"}


def subject_of(part: RedactedPart, server_id: int, target: str, call: PendingCall | None = None) -> Subject:
    """As of the payload that holds the same content."""
    schema: Any = None
    if call is not None and call.method == methods.TOOLS_CALL and may_hold_secret(call.definition):
        definition = json.loads(call.definition)
        schema = definition.get(_SCHEMAS.get(part, "")) if isinstance(definition, dict) else None
    return Subject(part, server_id, target, schema)


def give_body(entry: WireEntry, text: str, subjects: Sequence[Subject | None]) -> None:
    """`subjects`: what it is about, or all that it may be about. The body is left out where it cannot be searched."""
    now = payload_privacy.latest()
    found = [redaction.redacted_message(text, subject, now) for subject in subjects]
    masked = found[0] if None not in found else None
    if masked is not None:
        # Masking decodes escapes, also those of characters that no database takes.
        entry.body, entry.to_seal = storable(masked), now.seal


def seal_bodies(entries: Iterable[WireEntry]) -> None:
    """Of those that are about to be written and shall be encrypted. A body that cannot be is left out, and its row says so."""
    waiting = [entry for entry in entries if entry.to_seal]
    if not waiting:
        return
    bodies = [(random_uuid(), entry.body.encode()) for entry in waiting]
    for entry in waiting:
        entry.body, entry.to_seal = "", False
    try:
        sealed, key_id = seal_together(bodies, table=_TABLE, field="sealed")
    except SealError as problem:
        log.warning("host.wire_not_encrypted", messages=len(waiting), problem=str(problem))
        for entry in waiting:
            entry.detail = f"{entry.detail} {_NOT_STORED} {problem}".strip()
        return
    for entry, (uid, _), value in zip(waiting, bodies, sealed, strict=True):
        entry.uid, entry.sealed, entry.key_id = uid, value, key_id


def masked_words(text: str) -> str:
    """For an error's message."""
    return redaction.detected_in(text, payload_privacy.latest())
