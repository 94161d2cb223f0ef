"""The resources (a clock that changes, a constant text, one per note) and the subscriptions to the clock."""

import threading
import time
from typing import Any, NamedTuple
from urllib.parse import unquote

from mcpadmin.demo_server import eras
from mcpadmin.demo_server.rpc import INVALID_PARAMS, LEGACY_RESOURCE_NOT_FOUND, Call, LineWriter, RpcError

CLOCK = "demo://clock"
README = "demo://readme"
NOTE_PREFIX = "demo://notes/"
CLOCK_PERIOD = 5  # seconds
MAX_LISTENS = 16
TAGS = ("work", "travel", "kitchen", "garden")
CLOCK_URIS = frozenset({CLOCK})  # the only resources that change, so the only ones worth a subscription

RESOURCES = [
    {
        "uri": CLOCK,
        "name": "clock",
        "title": "Clock",
        "description": f"The time in UTC; changes every {CLOCK_PERIOD} seconds. Subscribe to see it change.",
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
        "description": "A note by name. Names can be completed.",
        "mimeType": "text/plain",
    }
]
README_TEXT = """# The demo server

It ships with mcpadmin, so that you can try things out before you register your own servers.

- **Tools**: `greet` and `add` answer immediately, `countdown` takes its time, `draw` returns an image,
  `search_notes` has a form with many kinds of fields, `forget_notes` is destructive, `fail_on_purpose` fails.
- **Resources**: `demo://clock` changes every five seconds, `demo://notes/{name}` is a template.
- **Prompts**: `summarise` and `explain` take arguments that can be completed.

It keeps everything in memory and touches neither files nor the network.
"""


class Note(NamedTuple):
    name: str
    title: str
    created: str  # ISO date
    tags: tuple[str, ...]
    text: str


FIRST_NOTES = (
    Note("sourdough", "Sourdough", "2025-03-02", ("kitchen",), "Feed the starter in the evening, bake at noon."),
    Note("tomatoes", "Tomatoes", "2025-05-11", ("garden",), "Plant deep, water low, pinch the side shoots."),
    Note("lisbon", "Lisbon", "2025-06-20", ("travel",), "Tram 28 before nine, then walk down through Alfama."),
    Note("standup", "Stand-up", "2025-09-01", ("work",), "Yesterday, today, what is in the way. Nothing else."),
    Note("compost", "Compost", "2025-10-14", ("garden", "kitchen"), "Two parts brown, one part green, turn it weekly."),
    Note(
        "night-train", "Night train", "2026-01-09", ("travel", "work"), "Earplugs, power bank, the early meeting moved."
    ),
)


class Store:
    """The notes, in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes = {note.name: note for note in FIRST_NOTES}

    def all(self) -> list[Note]:
        with self._lock:
            return list(self._notes.values())

    def get(self, name: str) -> Note | None:
        with self._lock:
            return self._notes.get(name)

    def forget(self, tag: str) -> list[str]:
        """Remove every note with this tag and return their names."""
        with self._lock:
            names = [note.name for note in self._notes.values() if tag in note.tags]
            for name in names:
                del self._notes[name]
            return names


class Resources:
    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, call: Call) -> dict[str, Any]:
        uri = call.text("uri")
        mime_type = "text/plain"
        if uri == CLOCK:  # the text shows the start of the current period
            begin = time.time() // CLOCK_PERIOD * CLOCK_PERIOD
            text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(begin))
        elif uri == README:
            text, mime_type = README_TEXT, "text/markdown"
        elif uri.startswith(NOTE_PREFIX) and (note := self._store.get(unquote(uri.removeprefix(NOTE_PREFIX)))):
            text = f"{note.title} ({note.created})\n\n{note.text}\n"
        else:
            code = INVALID_PARAMS if call.modern else LEGACY_RESOURCE_NOT_FOUND
            raise RpcError(code, "Resource not found", {"uri": uri})
        result: dict[str, Any] = {"contents": [{"uri": uri, "mimeType": mime_type, "text": text}]}
        if call.modern:
            # The clock goes stale at its next tick. Clients may cache everything else for a minute.
            left = CLOCK_PERIOD - time.time() % CLOCK_PERIOD
            result |= {"ttlMs": int(left * 1000) if uri == CLOCK else 60_000, "cacheScope": "public"}
        return result


class Watch:
    """Subscribers to resource changes, in either era, and the clock that notifies them.

    Legacy clients subscribe to one URI at a time. Modern clients open listens, each identified by its request id."""

    def __init__(self, outlet: LineWriter) -> None:
        self._outlet = outlet
        self._lock = threading.Lock()
        self._legacy: set[str] = set()
        self._listens: dict[Any, frozenset[str]] = {}
        self._ticking = False

    def subscribe(self, call: Call) -> dict[str, Any]:
        uri = call.text("uri")
        if uri not in CLOCK_URIS:
            raise RpcError(INVALID_PARAMS, f"{uri} never changes; only {CLOCK} does.")
        with self._lock:
            self._legacy.add(uri)
        self._start_clock()
        return {}

    def unsubscribe(self, call: Call) -> dict[str, Any]:
        uri = call.text("uri")
        with self._lock:
            self._legacy.discard(uri)
        return {}

    def listen(self, request_id: Any, params: dict[str, Any]) -> None:
        """Acknowledge the subset we will report. The request stays open until the client cancels it."""
        wanted = params.get("notifications")
        uris = wanted.get("resourceSubscriptions", []) if isinstance(wanted, dict) else None
        if not isinstance(uris, list):
            raise RpcError(INVALID_PARAMS, "params.notifications must be an object; resourceSubscriptions a list.")
        honoured = frozenset(uri for uri in uris if isinstance(uri, str)) & CLOCK_URIS
        with self._lock:
            if len(self._listens) >= MAX_LISTENS:
                raise RpcError(INVALID_PARAMS, f"At most {MAX_LISTENS} listen streams can be open.")
            # Send the acknowledgement first: no notification may precede it.
            subset = {"resourceSubscriptions": sorted(honoured)} if honoured else {}
            self._notify("notifications/subscriptions/acknowledged", request_id, notifications=subset)
            self._listens[request_id] = honoured
        self._start_clock()

    def end_listen(self, request_id: Any) -> bool:
        with self._lock:
            return self._listens.pop(request_id, None) is not None

    def _notify(self, method: str, listen_id: Any, **params: Any) -> None:
        self._outlet.notify(method, params | {"_meta": {eras.SUBSCRIPTION_KEY: listen_id}})

    def _start_clock(self) -> None:
        with self._lock:
            if self._ticking:
                return
            self._ticking = True
        threading.Thread(target=self._tick, name="clock", daemon=True).start()

    def _tick(self) -> None:
        """Runs in a daemon thread until the process exits and wakes once per period."""
        while True:
            time.sleep(CLOCK_PERIOD - time.time() % CLOCK_PERIOD)
            with self._lock:
                if CLOCK in self._legacy:
                    self._outlet.notify("notifications/resources/updated", {"uri": CLOCK})
                for listen_id, uris in self._listens.items():
                    if CLOCK in uris:
                        self._notify("notifications/resources/updated", listen_id, uri=CLOCK)
