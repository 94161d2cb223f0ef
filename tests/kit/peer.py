"""A scripted peer of the tab's socket: records what pages send, and replies."""

import json
from typing import Any

from playwright.sync_api import Page, WebSocketRoute


class Peer:
    def __init__(self, page: Page) -> None:
        self.heard: list[dict[str, Any]] = []
        self.connections = 0
        self.answers_pings = True
        self.newest: dict[str, int] = {}
        self.welcome: dict[str, Any] = {}
        self.refusal: tuple[int, str] | None = None  # code and words, in place of a welcome
        self._socket: WebSocketRoute | None = None
        page.route_web_socket(lambda url: url.endswith("/ws/"), self._accept)

    def _accept(self, socket: WebSocketRoute) -> None:
        self.connections += 1
        self._socket = socket
        socket.on_message(lambda text: self._on_message(socket, json.loads(text)))

    def _on_message(self, socket: WebSocketRoute, message: dict[str, Any]) -> None:
        self.heard.append(message)
        if message["op"] == "hello" and self.refusal:
            self.say({"op": "refused", "words": self.refusal[1]})
            self.close(self.refusal[0])
        elif message["op"] == "hello":
            self.say({"op": "welcome"} | self.welcome)
        elif message["op"] == "ping" and self.answers_pings:
            self.say({"op": "pong", "ref": message["ref"]})
        elif message["op"] == "sub":
            for topic, since in message["topics"].items():
                self.say({"op": "synced", "t": topic, "seq": self.newest.get(topic, since)})

    def say(self, message: dict[str, Any]) -> None:
        assert self._socket is not None
        self._socket.send(json.dumps(message))

    def close(self, code: int) -> None:
        assert self._socket is not None
        self._socket.close(code=code)

    def said(self, op: str) -> list[dict[str, Any]]:
        return [message for message in self.heard if message["op"] == op]
