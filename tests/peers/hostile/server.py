"""A correct legacy server (modern where the scenario needs it), except for the tool `evil` and, in some scenarios, for
`tools/list`. It knows messages only; the programs beside it carry them. Standard library only.
"""

import json
from collections.abc import Iterator
from typing import Any

from .calls import CALLS
from .lists import LISTS, tool
from .messages import Ask, Said, dumped, text_result

MODERN = frozenset({"endless-rounds", "fat-state"})
_INFO = {"name": "hostile", "version": "1"}


class Hostile:
    def __init__(self, scenario: str) -> None:
        self.scenario = scenario
        #: replies of the client to requests of ours
        self.replies: list[dict[str, Any]] = []
        self.calls = 0

    def answers(self, message: dict[str, Any]) -> Iterator[Said]:
        """What is said to one message of the client; nothing to a notification."""
        method = message.get("method")
        if method is None:
            self.replies.append(message)
        elif method == "tools/call":
            yield from self._call(message)
        elif method == "tools/list" and self.scenario in LISTS:
            yield from LISTS[self.scenario](Ask(message))
        elif "id" in message and method != "prompts/list":
            yield self._right(method, message["id"])

    def evil(self, message: Any) -> bool:
        return isinstance(message, dict) and (message.get("params") or {}).get("name") == "evil"

    def _call(self, message: dict[str, Any]) -> Iterator[Said]:
        arguments = message["params"].get("arguments") or {}
        if self.evil(message):
            self.calls += 1
            yield from CALLS.get(self.scenario, _nothing)(Ask(message))
        elif message["params"].get("name") == "replies":
            yield text_result(message["id"], json.dumps(self.replies[:50]))
        else:
            yield text_result(message["id"], arguments.get("text", ""))

    def _right(self, method: str, identity: Any) -> bytes:
        capabilities = {"tools": {"listChanged": True}, "logging": {}}
        if self.scenario == "broken-list-beside-silence":
            capabilities["prompts"] = {}
        if method == "initialize" and self.scenario not in MODERN:
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": _INFO}
        elif method == "server/discover" and self.scenario in MODERN:
            result = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
        elif method == "tools/list":
            result = {"tools": [tool("echo"), tool("evil"), tool("replies")]}
        elif method == "ping":
            result = {}
        else:
            return dumped({"id": identity, "error": {"code": -32601, "message": "Method not found"}})
        return dumped({"id": identity, "result": result})


def _nothing(ask: Ask) -> Iterator[Said]:
    return iter(())
