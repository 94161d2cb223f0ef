"""The privacy settings and redaction rules that apply to a payload before it is stored, cached briefly by each process,
because every call needs them.

A change applies in the process that made it at once, in the others within SECONDS.
"""

import threading
import time
from dataclasses import dataclass, field

from servers.models import PrivacySettings, RedactionRule

SECONDS = 5.0
_KEY = 1


@dataclass(frozen=True)
class Rule:
    """As RedactionRule."""

    path: str
    part: str
    server_id: int | None
    target: str


@dataclass(frozen=True)
class PayloadPrivacy:
    seal: bool = False
    by_schema: bool = True
    detect: bool = True
    rules: tuple[Rule, ...] = field(default=())


_guard = threading.Lock()
_latest = PayloadPrivacy()
_due = 0.0
_generation = 0


def current() -> PayloadPrivacy:
    """Reads the database if the last read was more than SECONDS ago."""
    global _latest, _due
    if time.monotonic() < _due:
        return _latest
    with _guard:
        generation = _generation
    found = stored()
    with _guard:
        if generation == _generation:
            _latest, _due = found, time.monotonic() + SECONDS
    return found


def latest() -> PayloadPrivacy:
    """Without the database, for an event loop: what the last `current` of this process found."""
    return _latest


def forget() -> None:
    """Call it after the commit of a change."""
    global _due, _generation
    with _guard:
        _due, _generation = 0.0, _generation + 1


def reset() -> None:
    """Restore the state of a new process. For tests."""
    global _latest
    forget()
    _latest = PayloadPrivacy()


def stored() -> PayloadPrivacy:
    row = PrivacySettings.objects.filter(pk=_KEY).first() or PrivacySettings()
    rules = RedactionRule.objects.filter(enabled=True).values_list("path", "part", "server_id", "target")
    return PayloadPrivacy(
        row.seal_payloads, row.mask_by_schema, row.mask_detected, tuple(Rule(*rule) for rule in rules)
    )
