"""The resources: a clock that changes, a text that does not, and one for each note."""

import time
from typing import Any
from urllib.parse import unquote

from mcpadmin.demo_server.call import Call
from mcpadmin.demo_server.errors import INVALID_PARAMS, LEGACY_RESOURCE_NOT_FOUND, RpcError
from mcpadmin.demo_server.notes import Store

CLOCK = "demo://clock"
README = "demo://readme"
NOTE_PREFIX = "demo://notes/"
CLOCK_PERIOD = 5  # seconds
CLOCK_URIS = frozenset({CLOCK})  # what changes by itself, so that a subscription to it makes sense

RESOURCES = [
    {
        "uri": CLOCK,
        "name": "clock",
        "title": "Clock",
        "description": f"The time in UTC; changes every {CLOCK_PERIOD} seconds. Subscribe to see it move.",
        "mimeType": "text/plain",
    },
    {
        "uri": README,
        "name": "readme",
        "title": "Read me",
        "description": "What this server is for.",
        "mimeType": "text/markdown",
    },
]
TEMPLATES = [
    {
        "uriTemplate": NOTE_PREFIX + "{name}",
        "name": "note",
        "title": "Note",
        "description": "One note by its name; the name can be completed.",
        "mimeType": "text/plain",
    }
]
README_TEXT = """# The demo server

It ships with mcpadmin, so that there is something to look at before your own servers are registered.

- **Tools**: `greet` and `add` answer at once, `countdown` takes its time, `draw` returns an image,
  `search_notes` has a form with many kinds of fields, `forget_notes` is destructive, `fail_on_purpose` fails.
- **Resources**: `demo://clock` changes every five seconds, `demo://notes/{name}` is a template.
- **Prompts**: `summarise` and `explain` take arguments that can be completed.

It keeps everything in memory and touches neither files nor the network.
"""


def clock_tick(now: float) -> int:
    """Number of the period that `now` lies in; the clock shows the beginning of it."""
    return int(now // CLOCK_PERIOD)


def _clock_text() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(clock_tick(time.time()) * CLOCK_PERIOD))


class Resources:
    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, call: Call) -> dict[str, Any]:
        uri = call.text("uri")
        text, mime_type = self._content(uri, call)
        result: dict[str, Any] = {"contents": [{"uri": uri, "mimeType": mime_type, "text": text}]}
        if call.modern:
            # The clock is stale at its next tick; everything else is worth keeping for a minute.
            left = CLOCK_PERIOD - time.time() % CLOCK_PERIOD
            result |= {"ttlMs": int(left * 1000) if uri == CLOCK else 60_000, "cacheScope": "public"}
        return result

    def _content(self, uri: str, call: Call) -> tuple[str, str]:
        if uri == CLOCK:
            return _clock_text(), "text/plain"
        if uri == README:
            return README_TEXT, "text/markdown"
        note = self._store.get(unquote(uri.removeprefix(NOTE_PREFIX))) if uri.startswith(NOTE_PREFIX) else None
        if note is None:
            code = INVALID_PARAMS if call.modern else LEGACY_RESOURCE_NOT_FOUND
            raise RpcError(code, "Resource not found", {"uri": uri})
        return f"{note.title} ({note.created})\n\n{note.text}\n", "text/plain"
