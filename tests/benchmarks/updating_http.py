"""An HTTP server for MCP (legacy) with one resource, `bench://clock`, that changes when a line arrives on stdin: it tells
its subscribers, and prints the time at which it did (time.time_ns).

python updating_http.py, with the base URL on stderr. Standard library only.
"""

import asyncio
import json
import sys
import time
from typing import Any

from echo_http import Echo, _chunk, serve

URI = "bench://clock"
_CAPABILITIES = {"resources": {"subscribe": True}, "tools": {}}
_UPDATED = json.dumps({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": URI}}).encode()


class Updating(Echo):
    listeners: "set[Updating]" = set()
    changes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.listeners.discard(self)

    def _reply(self, head: bytes, body: bytes) -> bytes:
        if head.startswith(b"GET"):
            self.listeners.add(self)
        return super()._reply(head, body)

    def _answer(self, body: bytes) -> bytes:
        asked = json.loads(body)
        result = self._result(asked)
        return (
            super()._answer(body)
            if result is None
            else json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
        )

    def _result(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        method = asked.get("method")
        if method == "initialize":
            info = {"name": "clock", "version": "1"}
            version = asked["params"]["protocolVersion"]
            return {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": info}
        if method == "resources/list":
            return {"resources": [{"uri": URI, "name": "clock", "mimeType": "text/plain"}]}
        if method == "resources/templates/list":
            return {"resourceTemplates": []}
        if method == "resources/read":
            return {"contents": [{"uri": URI, "mimeType": "text/plain", "text": f"change {Updating.changes}"}]}
        return {} if method in ("resources/subscribe", "resources/unsubscribe") else None


def change() -> None:
    sys.stdin.readline()
    Updating.changes += 1
    now = time.time_ns()
    for listener in Updating.listeners:
        listener._transport.write(_chunk(b"data: " + _UPDATED + b"\n\n"))
    print(now, flush=True)


if __name__ == "__main__":
    asyncio.run(serve(Updating, beside=lambda loop: loop.add_reader(sys.stdin, change)))
