"""Dispatches each message: selects its era, its method and its thread."""

import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from mcpadmin.demo_server import eras
from mcpadmin.demo_server.prompts import PROMPTS, Prompts
from mcpadmin.demo_server.resources import RESOURCES, TEMPLATES, Resources, Store, Watch
from mcpadmin.demo_server.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    Call,
    Cancelled,
    LineWriter,
    RpcError,
    checked_level,
    messages,
)
from mcpadmin.demo_server.tools import TOOLS, Tools

Handler = Callable[[Call], dict[str, Any]]
MAX_RUNNING = 32
CATALOGUE_TTL_MS = 60_000


class Server:
    def __init__(self, outlet: LineWriter) -> None:
        self._outlet = outlet
        self._legacy_version = ""  # set by initialize; "" means that each request names its revision
        self._log_level = "info"
        self._running: dict[Any, Call] = {}
        self._lock = threading.Lock()
        self._watch = Watch(outlet)
        store = Store()
        self._tools, resources, prompts = Tools(store), Resources(store), Prompts(store)
        shared: dict[str, Handler] = {
            "tools/list": lambda call: _catalogue("tools", [tool.definition for tool in TOOLS.values()], call),
            "resources/list": lambda call: _catalogue("resources", RESOURCES, call),
            "resources/templates/list": lambda call: _catalogue("resourceTemplates", TEMPLATES, call),
            "resources/read": resources.read,
            "prompts/list": lambda call: _catalogue("prompts", [*PROMPTS.values()], call),
            "prompts/get": prompts.get,
            "completion/complete": prompts.complete,
        }
        self._modern = shared | {"server/discover": lambda call: eras.discover()}
        self._legacy = shared | {
            "ping": lambda call: {},
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._watch.subscribe,
            "resources/unsubscribe": self._watch.unsubscribe,
        }

    def serve(self, stream: BinaryIO) -> None:
        """Serve until the client closes its end, then cancel the running calls: nothing can read their responses."""
        for message in messages(stream, self._outlet):
            if "id" in message and "method" in message:
                self._request(message["id"], message["method"], message.get("params", {}))
            elif "method" in message:
                self._notification(message["method"], message.get("params", {}))
        with self._lock:
            for call in self._running.values():
                call.cancel()

    def _request(self, request_id: Any, method: Any, params: Any) -> None:
        try:
            if not isinstance(params, dict) or not isinstance(method, str) or not isinstance(request_id, (str, int)):
                raise RpcError(INVALID_REQUEST, "method must be a string, params an object, id a string or an integer.")
            self._route(request_id, method, params)
        except RpcError as error:
            self._outlet.refuse(request_id, error)

    def _route(self, request_id: str | int, method: str, params: dict[str, Any]) -> None:
        if method == "initialize":
            result = eras.initialize(params)
            self._legacy_version = result["protocolVersion"]
            self._outlet.answer(request_id, result)
            return
        if method == "ping" and not self._legacy_version and "_meta" not in params:  # legacy, before initialize
            self._outlet.answer(request_id, {})
            return
        version = self._legacy_version or _modern_version(params)
        call = Call(self._outlet, request_id, params, version=version, log_level=self._log_level)
        if method == "tools/call":
            self._start(call)
        elif method == "subscriptions/listen" and call.modern:
            self._watch.listen(request_id, params)
        else:
            handler = (self._modern if call.modern else self._legacy).get(method)
            if handler is None:
                raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
            self._answer(call, handler)

    def _answer(self, call: Call, handler: Handler) -> None:
        try:
            result = handler(call)
        except RpcError as error:
            self._outlet.refuse(call.id, error)
        except Cancelled:
            pass  # the specification wants no response to a cancelled request
        except Exception as problem:  # report a bug here to the client; it must not end the session
            self._outlet.refuse(call.id, RpcError(INTERNAL_ERROR, f"Internal error: {type(problem).__name__}"))
        else:
            if not call.is_cancelled:
                self._outlet.answer(call.id, eras.modern_result(result) if call.modern else result)

    def _start(self, call: Call) -> None:
        """Run each tool in its own thread, so that a slow one blocks no other and can be cancelled."""
        with self._lock:
            if call.id in self._running:
                raise RpcError(INVALID_REQUEST, "This id belongs to a call that is still running.")
            if len(self._running) >= MAX_RUNNING:
                raise RpcError(INTERNAL_ERROR, f"At most {MAX_RUNNING} calls may run at once.")
            self._running[call.id] = call
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call: Call) -> None:
        try:
            self._answer(call, self._tools.run)
        finally:
            with self._lock:
                del self._running[call.id]

    def _notification(self, method: Any, params: Any) -> None:
        """Handle a cancellation. Ignore every other notification."""
        request_id = params.get("requestId") if isinstance(params, dict) else None
        if method != "notifications/cancelled" or not isinstance(request_id, (str, int)):
            return
        if self._watch.end_listen(request_id):
            return
        with self._lock:
            call = self._running.get(request_id)
        if call is not None:
            call.cancel()

    def _set_level(self, call: Call) -> dict[str, Any]:
        self._log_level = checked_level(call.params.get("level"))
        return {}


def _catalogue(kind: str, items: list[dict[str, Any]], call: Call) -> dict[str, Any]:
    """All items fit on one page and we never issue a cursor, so every cursor is invalid."""
    if "cursor" in call.params:
        raise RpcError(INVALID_PARAMS, "Invalid cursor")
    result: dict[str, Any] = {kind: items}
    return result | {"ttlMs": CATALOGUE_TTL_MS, "cacheScope": "public"} if call.modern else result


def _modern_version(params: dict[str, Any]) -> str:
    """Return the revision named in the request's `_meta`. Raises RpcError when it is missing or unsupported."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or eras.VERSION_KEY not in meta:
        raise RpcError(INVALID_REQUEST, f"Send initialize first, or name {eras.VERSION_KEY} in params._meta.")
    version = meta[eras.VERSION_KEY]
    if version not in eras.MODERN:
        details = {"supported": list(eras.MODERN), "requested": version}
        raise RpcError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", details)
    if not isinstance(meta.get(eras.CAPABILITIES_KEY), dict):
        raise RpcError(INVALID_PARAMS, f"params._meta lacks {eras.CAPABILITIES_KEY}.")
    return str(version)
