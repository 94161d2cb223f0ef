"""Requests of legacy sessions from their arrival on: a cancellation may come before there is a call that it could find.

A request may wait long before its call is placed, for the first list of its server. One that is cancelled until then is
not placed, so it leaves no row and no audit event, as a modern request whose agent leaves before.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from servers.agents.tokens import Principal
from sessions.agents.call_request import CALLED
from sessions.agents.calls.idempotency import stored_id
from sessions.agents.exchange import Exchange
from sessions.mcp.core.jsonrpc import RequestId
from sessions.mcp.server import posted
from sessions.mcp.server.posted import Headers, Posted

#: token, session as the agent names it, and id: known before anything is waited for
_Key = tuple[int, str, str]


class ArrivingRequests:
    """Of one web process. Holds only ids of requests whose connections are open."""

    def __init__(self) -> None:
        self._requests: Counter[_Key] = Counter()
        self._cancelled: set[_Key] = set()

    @contextmanager
    def known(self, principal: Principal, headers: Headers, found: Posted) -> Iterator[None]:
        """Until they end, those of these messages that become calls can be cancelled."""
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
        key = _key_of(exchange)
        if key in self._requests:
            self._cancelled.add(key)

    def found(self, exchange: Exchange) -> None:
        """Its call exists, and is cancelled instead: what repeats this request is answered as ever."""
        self._cancelled.discard(_key_of(exchange))

    def is_cancelled(self, exchange: Exchange) -> bool:
        return bool(self._cancelled) and exchange.session is not None and _key_of(exchange) in self._cancelled


def _called(value: Any) -> RequestId | None:
    method = value.get("method") if isinstance(value, dict) else None
    return posted.id_of(value) if isinstance(method, str) and method in CALLED else None


def _key_of(exchange: Exchange) -> _Key:
    return _key(exchange.entry.principal, exchange.headers, exchange.id)


def _key(principal: Principal, headers: Headers, request_id: RequestId) -> _Key:
    return principal.token.pk, headers.get(posted.SESSION, ""), stored_id(request_id)
