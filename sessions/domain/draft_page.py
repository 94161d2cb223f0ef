"""What *Test connection* shows: every step, also those not reached yet, and the explanation of a failure."""

from typing import Any

from servers.enums import DraftState, TransportKind
from servers.models import ServerDraft
from sessions.domain.diagnosis import explain

_TITLES = {
    "resolve": "Resolve",
    "connect": "Connect",
    "handshake": "Handshake",
    "list": "List what it offers",
}
_WORDS = {"finished": "done", "failed": "failed", "started": "running", "waiting": "waiting"}


def draft_context(draft: ServerDraft) -> dict[str, Any]:
    """Context of sessions/servers/_test.html."""
    reported = {step["name"]: step for step in draft.steps}
    steps = [_step(name, title, reported.get(name, {})) for name, title in _TITLES.items()]
    explanation = explain(draft.fault, draft.detail) if draft.state == DraftState.FAILED else None
    kind = draft.report.get("transport", "")
    transport = TransportKind(kind).short if kind in TransportKind.values else ""
    return {"draft": draft, "steps": steps, "explanation": explanation, "transport": transport}


def _step(name: str, title: str, reported: dict[str, Any]) -> dict[str, Any]:
    state = reported.get("state", "waiting")
    seconds = reported.get("seconds")
    return {
        "name": name,
        "title": title,
        "state": state,
        "word": _WORDS.get(state, state),
        "detail": reported.get("detail", ""),
        "seconds": seconds,
        "milliseconds": None if seconds is None else seconds * 1000,
    }
