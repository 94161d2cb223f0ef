"""What *Test connection* shows: every step, even if not reached yet, and the explanation of a failure."""

from datetime import datetime
from typing import Any

from django.utils import timezone

from servers.enums import DraftState, TransportKind
from servers.models import ServerDraft
from sessions.connections.diagnosis import explain
from sessions.mcp.core.errors import Fault
from sessions.mcp.core.refusals import header_asked_for

_TITLES = {
    "package": "Install package",
    "resolve": "Resolve",
    "connect": "Connect",
    "handshake": "Handshake",
    "list": "List definitions",
}
_WORDS = {"finished": "done", "failed": "failed", "started": "running", "waiting": "waiting", "skipped": "skipped"}


def draft_context(draft: ServerDraft) -> dict[str, Any]:
    """Context of the template servers/_test.html."""
    reported = {step["name"]: step for step in draft.steps}
    pending = "waiting" if draft.state == DraftState.RUNNING else "skipped"
    titles = {name: title for name, title in _TITLES.items() if name != "package" or name in reported}
    steps = [_step(name, title, reported.get(name, {"state": pending})) for name, title in titles.items()]
    explanation = explain(draft.fault, draft.detail) if draft.state == DraftState.FAILED else None
    kind = draft.report.get("transport", "")
    transport = TransportKind(kind).short if kind in TransportKind.values else ""
    return {
        "draft": draft,
        "steps": steps,
        "explanation": explanation,
        "transport": transport,
        "remedy_in_form": _remedy_in_form(draft),
        "start": _start(draft, reported.get("handshake") or reported.get("package", {})),
    }


def _remedy_in_form(draft: ServerDraft) -> dict[str, Any] | None:
    """What the form beside the report can add: a sign-in at the authorization server, a header with the key."""
    if draft.state != DraftState.FAILED or draft.fault not in (Fault.UNAUTHORIZED, Fault.KEY_NEEDED):
        return None
    is_sign_in = draft.fault == Fault.UNAUTHORIZED
    named = "" if is_sign_in else header_asked_for(draft.detail)
    return {"sign_in": is_sign_in, "header": "Authorization" if named.lower() in ("", "authorization") else named}


def _start(draft: ServerDraft, step: dict[str, Any]) -> dict[str, Any] | None:
    """The process that has not answered yet."""
    since = step.get("since")
    if draft.transport != TransportKind.STDIO or draft.state != DraftState.RUNNING or not since:
        return None
    if step["state"] != "started":
        return None
    seconds = int((timezone.now() - datetime.fromisoformat(since)).total_seconds())
    return {"since": since, "seconds": seconds, "hints": step.get("hints", [])}


def _step(name: str, title: str, reported: dict[str, Any]) -> dict[str, Any]:
    state = reported["state"]
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
