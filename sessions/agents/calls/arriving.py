"""Legacy requests from their arrival on: a cancellation may come before there is a call for it to find.

A request may wait a long time for the first list of its server before its call is placed. If it is cancelled before
then, it is not placed, so it leaves no row and no audit event, like a modern request whose agent disconnects early.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from servers.agents.tokens import Principal
from sessions import hints
from sessions.agents.call_request import CALLED
from sessions.agents.calls.idempotency import stored_id
from sessions.agents.exchange import Exchange
from sessions.hints.hint_rows import first_row
from sessions.mcp.core.jsonrpc import RequestId
from sessions.mcp.server import posted
from sessions.mcp.server.posted import Headers, Posted


class ArrivingRequests:
    """The arriving requests of one web process: only those with open connections, each stored as a digest of its token,
    session key and id. These are known before the first wait, and a hint with the digest does not reveal the key."""

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()
        self._cancelled: set[str] = set()

    @contextmanager
    def known(self, principal: Principal, headers: Headers, found: Posted) -> Iterator[None]:
        """While this is open, the messages that become calls can be cancelled."""
        keys = [_key(principal, headers, one) for value in found.values if (one := _called(value)) is not None]
        self._requests.update(keys)
        try:
            yield
        finally:
            self._requests.subtract(keys)
            for key in keys:
                if self._requests[key] <= 0:
                    del self._requests[key]
                    self._cancelled.discard(key)

    def cancel(self, exchange: Exchange) -> None:
        self._cancel(_key_of(exchange))

    def cancel_elsewhere(self, exchange: Exchange) -> None:
        """There is no call of this request yet, so another web process may be about to place it."""
        if (key := _key_of(exchange)) not in self._requests:
            hints.agent_request_cancelled(key)

    def hint(self, hint: dict[str, Any] | None) -> None:
        key = first_row(hint.get("rows")).get("request") if hint is not None else None
        if isinstance(key, str):
            self._cancel(key)

    def _cancel(self, key: str) -> None:
        if key in self._requests:
            self._cancelled.add(key)

    def found(self, exchange: Exchange) -> None:
        """The call exists and is cancelled instead, so that a repeated request is answered as usual."""
        self._cancelled.discard(_key_of(exchange))

    def is_cancelled(self, exchange: Exchange) -> bool:
        return bool(self._cancelled) and exchange.session is not None and _key_of(exchange) in self._cancelled


def _called(value: Any) -> RequestId | None:
    method = value.get("method") if isinstance(value, dict) else None
    return posted.id_of(value) if isinstance(method, str) and method in CALLED else None


def _key_of(exchange: Exchange) -> str:
    return _key(exchange.entry.principal, exchange.headers, exchange.id)


def _key(principal: Principal, headers: Headers, request_id: RequestId) -> str:
    named = f"{principal.token.pk}\n{headers.get(posted.SESSION, '')}\n{stored_id(request_id)}"
    return hashlib.sha256(named.encode()).hexdigest()
