"""Applies the instance's privacy settings to a message before it is kept: masks by rule, schema and shape,
encryption."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from sessions.mcp.core.input_requests import ELICIT, SAMPLE
from sessions.models import WireMessage

log = structlog.get_logger(__name__)
_TABLE: Final = WireMessage._meta.db_table
_NOT_STORED: Final = "The content could not be encrypted, so it was not stored."
#: characters of a form's schema, and requests for input of one result, that are remembered
_KEPT_SCHEMA: Final = 64 * 1024
_MOST_ASKED: Final = 100
_SCHEMAS: Final = {RedactedPart.ARGUMENTS: "inputSchema", RedactedPart.RESULT: "outputSchema"}


def subject_of(part: RedactedPart, server_id: int, target: str, call: PendingCall | None = None) -> Subject:
    """The subject of the payload with the same content."""
    schema: Any = None
    if call is not None and call.method == methods.TOOLS_CALL and may_hold_secret(call.definition):
        definition = json.loads(call.definition)
        schema = definition.get(_SCHEMAS.get(part, "")) if isinstance(definition, dict) else None
    return Subject(part, server_id, target, schema)


@dataclass(frozen=True)
class Asked:
    """What a server asked a person for: `schema` is that of an elicitation's form, if it declares a secret."""

    method: str
    schema: Any = None

    @classmethod
    def of(cls, method: str, params: Any) -> "Asked":
        schema = params.get("requestedSchema") if isinstance(params, dict) and method == ELICIT else None
        text = json.dumps(schema) if isinstance(schema, dict) else ""
        if not may_hold_secret(text):
            return cls(method)
        return cls(method, schema if len(text) <= _KEPT_SCHEMA else {"writeOnly": True})  # then all of it is masked

    def answer(self, server_id: int, *place: str) -> Subject:
        """`place`: the path of the response within the message."""
        inside = (*place, "content") if self.method == ELICIT else place
        return Subject(RedactedPart.ANSWER, server_id, self.method, self.schema, inside)


_ANY_ASKED: Final = (Asked(ELICIT), Asked(SAMPLE))


def asked_in(result: Any) -> dict[str, Asked]:
    """The requests for input in a result, by their keys (2026-07-28)."""
    entries = result.get("inputRequests") if isinstance(result, dict) else None
    found = (
        [(key, entry) for key, entry in entries.items() if isinstance(entry, dict)] if isinstance(entries, dict) else []
    )
    return {key: Asked.of(str(entry.get("method", "")), entry.get("params")) for key, entry in found[:_MOST_ASKED]}


def answers_in(params: dict[str, Any], asked: Mapping[str, Asked], server_id: int) -> list[Subject]:
    """The subjects of a request that brings what a server asked for. If it is unknown what was asked, any rule for
    answers may apply."""
    responses = params.get("inputResponses")
    keys = list(responses)[:_MOST_ASKED] if isinstance(responses, dict) else []
    return [
        one.answer(server_id, "params", "inputResponses", key)
        for key in keys
        for one in ([asked[key]] if key in asked else _ANY_ASKED)
    ]


def give_body(entry: WireEntry, text: str, subjects: Sequence[Subject | None]) -> None:
    """Set the masked body. `subjects`: all that it is, or may be, about. The body is left out if it cannot be
    searched."""
    now, masked = payload_privacy.latest(), text
    for subject in subjects:
        found = redaction.redacted_message(masked, subject, now)
        if found is None:
            return
        masked = found
    # Masking decodes escapes, including those of characters that no database accepts.
    entry.body, entry.to_seal = storable(masked), now.seal


def seal_bodies(entries: Iterable[WireEntry]) -> None:
    """Encrypt the bodies that must be encrypted, just before they are written. If that fails, they are left out, and
    their rows say so."""
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
    """The text of an error message, without detected secrets."""
    return redaction.detected_in(text, payload_privacy.latest())
