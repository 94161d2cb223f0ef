"""The displayed state of a session: one answer from its rows, for the pill in the header, the panels, the list and the
overview.

A row says "ready" until another process notices that its worker is gone, so the owner's heartbeat counts too. Needs
`owner` joined.
"""

from dataclasses import dataclass

from servers.kit.words import Look, session_look
from servers.models import Server
from sessions.enums import Desired, SessionCondition, SessionState
from sessions.models import McpSession

_ARCHIVED, _DISABLED = Look("Archived", "", "archive"), Look("Disabled", "", "ban")
_PAUSING = Look("Pausing", "warn", "player-pause")
_STOPPED = Look("Worker stopped", "warn", "plug-x")
_SILENT = Look("Worker not responding", "warn", "plug-x")
#: the worker of the session is gone, and no other worker has claimed the session yet
GONE = frozenset({"worker_stopped", "worker_silent"})
_OPENING = frozenset({SessionState.CONNECTING.value, SessionState.INITIALIZING.value})


@dataclass(frozen=True, slots=True)
class ShownState:
    """`key` names the state for code that branches on it; `look` is its pill. A page with nothing to list shows `title`
    and `text`; `{what}` stands for what it would list."""

    key: str
    look: Look
    title: str
    text: str

    @property
    def gone(self) -> bool:
        return self.key in GONE

    @property
    def opening(self) -> bool:
        return self.key in _OPENING

    @property
    def waits_for_worker(self) -> bool:
        return self.key == SessionCondition.WAITING_WORKER


def shown(server: Server, session: McpSession | None) -> ShownState:
    key, look = _state(server, session)
    title, text = _panel(key, look, session)
    return ShownState(key, look, title, text)


def _state(server: Server, session: McpSession | None) -> tuple[str, Look]:
    if server.archived_at is not None:
        return "archived", _ARCHIVED
    if not server.enabled:
        return "disabled", _DISABLED
    if session is None:
        return SessionState.DISCONNECTED.value, session_look(SessionState.DISCONNECTED)
    if session.state != SessionState.DISCONNECTED:
        return _open_state(session)
    if session.paused:
        return SessionCondition.PAUSED.value, session_look(session.state, SessionCondition.PAUSED)
    if session.condition != SessionCondition.NONE:
        return session.shown_condition, session_look(session.state, session.shown_condition)
    return SessionState.DISCONNECTED.value, session_look(SessionState.DISCONNECTED)


def _open_state(session: McpSession) -> tuple[str, Look]:
    owner = session.owner
    if owner is not None and owner.ended_at is not None:
        return "worker_stopped", _STOPPED
    if owner is not None and not owner.alive:
        return "worker_silent", _SILENT
    if session.paused:
        return "pausing", _PAUSING
    return session.state, session_look(session.state)


_APPEAR = "The {what} appear once the server is connected."
_PANELS = {
    "archived": (
        "Archived",
        "This server is archived. Its calls are kept under History. Restore and enable it to see its {what} again.",
    ),
    "disabled": ("Disabled", "Enable the server to connect it and see its {what}."),
    "ready": ("No {what}", "The server is connected but offers no {what}."),
    "pausing": ("Pausing", "Calls in flight finish first, then the session closes."),
    "paused": ("Paused", "Resume the server to connect it and see its {what}."),
    "waiting_worker": ("Waiting for a worker", "The {what} appear once a worker connects the server."),
    "worker_stopped": ("Worker stopped", "The {what} appear once another worker connects the server."),
    "worker_silent": ("Worker not responding", "The {what} appear once another worker connects the server."),
    "disconnecting": ("Disconnecting", "The session is closing."),
}
_CLOSED = (
    "Not connected yet",
    "Connect the server to see its {what}. They stay visible after it disconnects.",
)
_LOADING = ("Loading {what}", "The server is connected. Its lists are being read for the first time.")
_FAILING = "The connection failed for the reason above. The {what} appear once the server is connected."


def _panel(key: str, look: Look, session: McpSession | None) -> tuple[str, str]:
    if key == SessionState.READY and session is not None and not session.catalog_counts:
        return _LOADING
    if found := _PANELS.get(key):
        return found
    if session is None or session.desired != Desired.OPEN:
        return _CLOSED
    if key in _OPENING:
        return look.word, _APPEAR
    return (look.word, _FAILING) if session.fault else ("Connecting", _APPEAR)
