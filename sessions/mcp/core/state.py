"""Every legal state transition of a session: one table per era.

Pure data; session.py changes the state. A transition that is not in the table raises IllegalTransition.
"""

from enum import StrEnum
from typing import Final

from .versions import Era


class State(StrEnum):
    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    INITIALIZING = "initializing"
    READY = "ready"
    DISCONNECTING = "disconnecting"


class Trigger(StrEnum):
    OPEN = "open"
    ERA_KNOWN = "era_known"
    REOPEN = "reopen"
    OPENED = "opened"
    SESSION_GONE = "session_gone"
    LOST = "lost"
    CLOSE = "close"
    CLOSED = "closed"


class IllegalTransition(RuntimeError):
    """A bug on our side, never a fault of the peer."""


_COMMON: Final = {
    (State.DISCONNECTED, Trigger.OPEN): State.CONNECTING,
    (State.DISCONNECTED, Trigger.LOST): State.DISCONNECTED,
    (State.DISCONNECTED, Trigger.CLOSE): State.DISCONNECTING,
    (State.CONNECTING, Trigger.ERA_KNOWN): State.INITIALIZING,
    (State.CONNECTING, Trigger.REOPEN): State.CONNECTING,
    (State.CONNECTING, Trigger.LOST): State.DISCONNECTED,
    (State.CONNECTING, Trigger.CLOSE): State.DISCONNECTING,
    (State.INITIALIZING, Trigger.OPENED): State.READY,
    (State.INITIALIZING, Trigger.LOST): State.DISCONNECTED,
    (State.INITIALIZING, Trigger.CLOSE): State.DISCONNECTING,
    (State.READY, Trigger.LOST): State.DISCONNECTED,
    (State.READY, Trigger.CLOSE): State.DISCONNECTING,
    (State.DISCONNECTING, Trigger.LOST): State.DISCONNECTING,
    (State.DISCONNECTING, Trigger.CLOSE): State.DISCONNECTING,
    (State.DISCONNECTING, Trigger.CLOSED): State.DISCONNECTED,
}

#: A legacy HTTP session that the server forgot (404) is initialized again on the same transport. If the server has
#: become modern since, it is probed again.
LEGACY: Final = _COMMON | {
    (State.READY, Trigger.SESSION_GONE): State.INITIALIZING,
    (State.INITIALIZING, Trigger.REOPEN): State.CONNECTING,
}

#: There are no wire sessions, so none can be lost.
MODERN: Final = dict(_COMMON)

TABLES: Final = {Era.LEGACY: LEGACY, Era.MODERN: MODERN}


def advance(era: Era, state: State, trigger: Trigger) -> State:
    """The state after `trigger`; raises IllegalTransition when the era's table has no such row."""
    try:
        return TABLES[era][state, trigger]
    except KeyError:
        raise IllegalTransition(f"{trigger} in state {state} ({era})") from None
