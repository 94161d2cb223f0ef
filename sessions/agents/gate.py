"""Who may come in, and how much: tokens, and the limits of each."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, Final

import structlog

from servers import limits
from servers.agents import tokens
from servers.agents.policies import Policies
from servers.agents.tokens import Principal, Unknown
from servers.audit.record import Actor, Event
from servers.audit.writer import WriterBusy, writer
from servers.enums import AuditAction, AuditOutcome, PolicyKind, Way
from sessions.agents import quotas
from sessions.agents.counting import Counting, Exceeded
from sessions.agents.endpoints import Entry
from sessions.agents.judging import known_policies, policies_of
from sessions.live.hub import Hub
from sessions.mcp.server.refusals import QUOTA, Refusal

#: our own code of a missing or worthless token
UNAUTHORIZED: Final = 4010
KNOWN_SECONDS: Final = 5.0
_MOST_KNOWN: Final = 10_000
_NOTED_SECONDS: Final = 60.0
_SOON: Final = {"Retry-After": "1", "Connection": "close"}
log = structlog.get_logger(__name__)


@dataclass
class _Known:
    principal: Principal
    until: float


class Gate:
    """`look()` drops what is known of every token: rights or tokens changed."""

    def __init__(self, hub: Hub) -> None:
        self._reader = hub.reader
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._streams = 0
        self.counting = Counting()
        self._used: OrderedDict[int, float] = OrderedDict()
        self._refused: OrderedDict[int, float] = OrderedDict()
        #: this process stops: streams end in an orderly way, and no request is taken on
        self.draining = False
        self._drains: list[Callable[[], None]] = []

    def drain(self) -> None:
        self.draining = True
        for callback in list(self._drains):
            callback()

    def on_drain(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Returns what ends it."""
        self._drains.append(callback)
        return partial(self._drains.remove, callback)

    def forget(self) -> None:
        self._known.clear()

    # --- tokens --------------------------------------------------------------------------------------------------
    async def principal(self, authorization: str, address: str) -> Principal:
        """Of a bearer token. Raises Refusal (401)."""
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() != "bearer" or not (text := text.strip()):
            raise _unauthorized("Send a token: Authorization: Bearer mca_…. Tokens are issued on the page Agents.")
        key = hashlib.sha256(f"{address} {text}".encode()).digest()
        now = time.monotonic()
        if (known := self._known.get(key)) is not None and known.until > now:
            return known.principal
        try:
            found = await self._reader.run(partial(tokens.principal_of, text, address))
        except Unknown as unknown:
            self._note_refusal(unknown, address)
            raise _unauthorized(
                "This token is unknown, expired, revoked or not for this address.", known=True
            ) from None
        self._known[key] = _Known(found, now + KNOWN_SECONDS)
        _bound(self._known)
        return found

    def _note_refusal(self, unknown: Unknown, address: str) -> None:
        """A genuine token that no longer counts is of interest; any text that looks like one is not."""
        token = unknown.token
        log.warning("agent_refused", why=unknown.why, ip=address, token=token.shown if token else None)
        if token is None or not _due(self._refused, token.pk):
            return
        actor = Actor(token.user_id, token.user.get_username(), address, way=Way.AGENT)
        details = {"token": str(token.uid), "why": unknown.why}
        event = Event(AuditAction.AGENT_TOKEN_REFUSE, AuditOutcome.DENIED, actor, subject=token.name, details=details)
        with suppress(WriterBusy):
            writer().submit(lambda: None, lambda _: [event])

    def note_use(self, principal: Principal, address: str, program: str) -> None:
        if _due(self._used, principal.token.pk):
            with suppress(WriterBusy):
                writer().submit(partial(tokens.used, principal.token.pk, address, program), spare=True)

    # --- limits --------------------------------------------------------------------------------------------------
    async def admit(self, principal: Principal) -> None:
        """Count one request of a token and of its person. Raises Refusal (429)."""
        _require(await self.counting.admit(quotas.rates_of(principal)))

    async def admit_at(self, entry: Entry) -> None:
        """And at an endpoint that has a limit. Raises Refusal (429)."""
        _require(await self.counting.admit(quotas.rates_at(entry, await self._policies(entry))))

    async def admit_call(self, entry: Entry, kind: PolicyKind, key: str) -> None:
        """And of what a rule limits by its name or URI. Raises Refusal (429)."""
        _require(await self.counting.admit(quotas.rates_of_target(entry, await self._policies(entry), kind, key)))

    @asynccontextmanager
    async def flight(self, principal: Principal) -> AsyncIterator[None]:
        """Raises Refusal (429)."""
        async with self.counting.flight(quotas.flights_of(principal)) as exceeded:
            _require(exceeded)
            yield

    @asynccontextmanager
    async def flight_at(self, entry: Entry) -> AsyncIterator[None]:
        """Raises Refusal (429)."""
        async with self.counting.flight(quotas.flights_at(entry, await self._policies(entry))) as exceeded:
            _require(exceeded)
            yield

    @asynccontextmanager
    async def stream(self, principal: Principal) -> AsyncIterator[None]:
        """Raises Refusal (429, 503)."""
        if self._streams >= limits.number("agent_streams_in_all"):
            raise full()
        self._streams += 1
        try:
            async with self.counting.flight(quotas.streams_of(principal)) as exceeded:
                _require(exceeded)
                yield
        finally:
            self._streams -= 1

    async def _policies(self, entry: Entry) -> Policies:
        known = known_policies(entry)
        return known if known is not None else await self._reader.run(partial(policies_of, entry))

    async def still_valid(self, principal: Principal, address: str) -> Principal | None:
        """For a stream: the same token with the rights of now. None when it counts no more."""
        try:
            return await self._reader.run(partial(tokens.still_valid, principal.token.pk, address))
        except Unknown:
            return None


def _require(exceeded: Exceeded | None) -> None:
    if exceeded is not None:
        raise too_many(exceeded)


def too_many(exceeded: Exceeded) -> Refusal:
    """HTTP status, header and body say when to come back: many programs lose the header."""
    data = {"reason": exceeded.name, "retryAfterMs": ceil(exceeded.retry_seconds * 1000)}
    alone = " Redis is away, so each web process counts alone." if exceeded.alone else ""
    return Refusal(
        429,
        QUOTA,
        f"Too many requests. {exceeded.words}{alone} Try again in {ceil(exceeded.retry_seconds)} s.",
        data,
        headers={"Retry-After": str(max(1, ceil(exceeded.retry_seconds)))},
    )


def stopping() -> Refusal:
    return Refusal(503, QUOTA, "mcpadmin is stopping. Try again in a moment.", {"retryAfterMs": 1_000}, headers=_SOON)


def full() -> Refusal:
    words = f"All streams are in use. {limits.stated('agent_streams_in_all')} Try again in a moment."
    return Refusal(503, QUOTA, words, {"retryAfterMs": 10_000}, headers={"Retry-After": "10"})


def _unauthorized(words: str, *, known: bool = False) -> Refusal:
    challenge = 'Bearer realm="mcpadmin"' + (', error="invalid_token"' if known else "")
    return Refusal(401, UNAUTHORIZED, words, headers={"WWW-Authenticate": challenge})


def _due(times: "OrderedDict[int, float]", key: int) -> bool:
    now = time.monotonic()
    if now - times.get(key, float("-inf")) < _NOTED_SECONDS:
        return False
    times[key] = now
    _bound(times)
    return True


def _bound(known: "OrderedDict[Any, Any]") -> None:
    while len(known) > _MOST_KNOWN:
        known.popitem(last=False)
