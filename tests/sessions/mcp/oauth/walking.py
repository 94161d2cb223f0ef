"""Drives an exchange step by step; the test answers each request."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from sessions.mcp.oauth.exchange import Exchange, HttpRequest, HttpResponse

Result = TypeVar("Result")
Answers = Mapping[str, Any]


def walk(exchange: Exchange[Result], answer: Callable[[HttpRequest], HttpResponse]) -> tuple[Result, list[HttpRequest]]:
    """The result of the exchange, and the requests that it made."""
    asked: list[HttpRequest] = []
    response: Any = None
    while True:
        try:
            asked.append(exchange.send(response))
        except StopIteration as stop:
            return stop.value, asked
        response = answer(asked[-1])


def documents(found: Answers) -> Callable[[HttpRequest], HttpResponse]:
    """Answers these URLs with a document or a status, and all others with 404."""

    def answer(request: HttpRequest) -> HttpResponse:
        value = found.get(request.url, 404)
        if isinstance(value, int):
            return HttpResponse(value)
        return HttpResponse(200, {"content-type": "application/json"}, json.dumps(value).encode())

    return answer


def fields(request: HttpRequest) -> dict[str, str]:
    return dict(parse_qsl((request.body or b"").decode(), keep_blank_values=True))


class Signer:
    """Returns as a signature the text of what it was asked to sign."""

    def __init__(self) -> None:
        self.nonces: dict[str, str] = {}

    def new_key(self) -> str:
        return "key"

    def proof(self, key: str, verb: str, url: str, *, nonce: str = "", token: str = "") -> str:
        return f"proof {key} {verb} {url} {nonce}{token}"

    def assertion(self, client_id: str, audience: str) -> str:
        return f"assertion of {client_id} for {audience}"

    def nonce_for(self, url: str) -> str:
        return self.nonces.get(url, "")

    def keep_nonce(self, url: str, nonce: str) -> None:
        if nonce:
            self.nonces[url] = nonce
