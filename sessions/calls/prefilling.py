"""The arguments of an earlier call as the initial values of a form. This does not run anything."""

import json
from dataclasses import dataclass
from typing import Any

from servers.audit import payloads
from servers.crypto import SealError
from servers.models import Payload
from servers.schemas.values import Draft, Unread, loose
from servers.secret import MASK


@dataclass(frozen=True)
class Prefill:
    """`value`: the draft of the arguments without masked values; None if they cannot be shown, and `problem` says why.
    `whose`: in words, with the link `url`. `omitted`: masked list items are not in the form, not even as empty ones."""

    whose: str
    url: str = ""
    value: Any = None
    masked: int = 0
    as_task: bool = False
    problem: str = ""
    omitted: bool = False

    @property
    def texts(self) -> dict[str, str]:
        """The arguments of a prompt, which are all text."""
        found = self.value if isinstance(self.value, dict) else {}
        return {name: text for name, text in found.items() if isinstance(text, str)}


def prefill_of(payload: Payload, whose: str, url: str, *, as_task: bool = False) -> Prefill:
    try:
        text = payloads.read(payload)
        value = json.loads(text) if text is not None else None
    except (SealError, ValueError, RecursionError) as problem:
        return Prefill(whose, url, problem=str(problem))
    if text is None:
        return Prefill(whose, url, problem="Its arguments were erased.")
    return Prefill(whose, url, _draft(value) if payload.redacted else value, payload.redacted, as_task)


def unmasked(value: Any) -> Any:
    """The value without members and items that contain a mask; None if the whole value is masked."""
    return loose(_draft(value))


def _draft(value: Any) -> Draft:
    """The draft with masked members omitted and masked items empty: an item must keep its position."""
    if _masked(value):
        return None
    if isinstance(value, list):
        return [Unread("") if _masked(item) else _draft(item) for item in value]
    if isinstance(value, dict):
        return {name: _draft(item) for name, item in value.items() if not _masked(item)}
    return value


def _masked(value: Any) -> bool:
    return isinstance(value, str) and MASK in value
