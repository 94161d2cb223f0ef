"""Who wants to know that a resource changed, in either era, and the clock that tells them."""

import threading
import time
from typing import Any

from mcpadmin.demo_server import eras
from mcpadmin.demo_server.errors import INVALID_PARAMS, RpcError
from mcpadmin.demo_server.resources import CLOCK, CLOCK_PERIOD, CLOCK_URIS
from mcpadmin.demo_server.wire import Outlet

MAX_LISTENS = 16


class Watch:
    """Legacy clients subscribe to one URI at a time; modern ones hold listens, known by their request's id."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._lock = threading.Lock()
        self._legacy: set[str] = set()
        self._listens: dict[Any, frozenset[str]] = {}
        self._ticking = False

    def subscribe(self, uri: str) -> None:
        if uri not in CLOCK_URIS:
            raise RpcError(INVALID_PARAMS, f"{uri} never changes; only {CLOCK} does.")
        with self._lock:
            self._legacy.add(uri)
        self._start_clock()

    def unsubscribe(self, uri: str) -> None:
        with self._lock:
            self._legacy.discard(uri)

    def listen(self, request_id: Any, params: dict[str, Any]) -> None:
        """Acknowledges what will be told; the request stays open until the client cancels it."""
        wanted = params.get("notifications")
        uris = wanted.get("resourceSubscriptions", []) if isinstance(wanted, dict) else None
        if not isinstance(uris, list):
            raise RpcError(INVALID_PARAMS, "params.notifications must be an object; resourceSubscriptions a list.")
        honoured = frozenset(uri for uri in uris if isinstance(uri, str)) & CLOCK_URIS
        with self._lock:
            if len(self._listens) >= MAX_LISTENS:
                raise RpcError(INVALID_PARAMS, f"At most {MAX_LISTENS} listens may be open.")
            # The acknowledgement goes out first: nothing may be told before it.
            self._tell("notifications/subscriptions/acknowledged", request_id, notifications=_subset(honoured))
            self._listens[request_id] = honoured
        self._start_clock()

    def end_listen(self, request_id: Any) -> bool:
        with self._lock:
            return self._listens.pop(request_id, None) is not None

    def _tell(self, method: str, listen_id: Any, **params: Any) -> None:
        self._outlet.notify(method, params | {"_meta": {eras.SUBSCRIPTION_KEY: listen_id}})

    def _start_clock(self) -> None:
        with self._lock:
            if self._ticking:
                return
            self._ticking = True
        threading.Thread(target=self._tick, name="clock", daemon=True).start()

    def _tick(self) -> None:
        """Runs as long as the process: a daemon thread that wakes once a period."""
        while True:
            time.sleep(CLOCK_PERIOD - time.time() % CLOCK_PERIOD)
            self._changed(CLOCK)

    def _changed(self, uri: str) -> None:
        with self._lock:
            if uri in self._legacy:
                self._outlet.notify("notifications/resources/updated", {"uri": uri})
            for listen_id, uris in self._listens.items():
                if uri in uris:
                    self._tell("notifications/resources/updated", listen_id, uri=uri)


def _subset(honoured: frozenset[str]) -> dict[str, Any]:
    return {"resourceSubscriptions": sorted(honoured)} if honoured else {}
