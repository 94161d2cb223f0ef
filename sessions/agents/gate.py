"""Who may come in, and how much: tokens, and the limits of each. State of this process only."""

import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from servers import limits
from servers.agents import tokens
from servers.agents.addresses import address_of
from servers.agents.oauth import metadata
from servers.agents.tokens import Principal, Unknown
from servers.audit.record import Actor, Event
from servers.audit.writer import WriterBusy, writer
from servers.enums import AuditAction, AuditOutcome, Way
from sessions.live.hub import Hub
from sessions.mcp.core.flow import TokenBucket
from sessions.mcp.server.refusals import QUOTA, Refusal

#: our own code of a missing or worthless token
UNAUTHORIZED: Final = 4010
KNOWN_SECONDS: Final = 5.0
_MOST_KNOWN: Final = 10_000
_BURST: Final = 40
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
        self._buckets: OrderedDict[int, TokenBucket] = OrderedDict()
        self._in_flight: Counter[int] = Counter()
        self._streams: Counter[int] = Counter()
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
    async def principal(self, authorization: str, address: str, slug: str) -> Principal:
        """Of a bearer token at the endpoint `slug`. Raises Refusal (401), which leads to the authorization server."""
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() != "bearer" or not (text := text.strip()):
            words = (
                "Sign in by OAuth, or send a token: Authorization: Bearer mca_…. Tokens are issued on the page Agents."
            )
            raise _unauthorized(words, slug)
        found = await self._known_or_read(text, address, slug)
        if found.token.resource and found.token.resource != address_of(slug):
            raise _unauthorized("This token is for another endpoint.", slug, known=True)
        return found

    async def _known_or_read(self, text: str, address: str, slug: str) -> Principal:
        key = hashlib.sha256(f"{address} {text}".encode()).digest()
        now = time.monotonic()
        if (known := self._known.get(key)) is not None and known.until > now:
            return known.principal
        try:
            found = await self._reader.run(partial(tokens.principal_of, text, address))
        except Unknown as unknown:
            self._note_refusal(unknown, address)
            words = "This token is unknown, expired, revoked or not for this address."
            raise _unauthorized(words, slug, known=True) from None
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
    def admit(self, principal: Principal) -> None:
        """Count one request. Raises Refusal (429)."""
        pk = principal.token.pk
        bucket = self._buckets.get(pk)
        if bucket is None:
            bucket = self._buckets[pk] = TokenBucket(limits.number("agent_requests_per_second"), _BURST)
            _bound(self._buckets)
        if not bucket.allow(time.monotonic()):
            raise too_many("agent_requests_per_second", 1.0)

    @contextmanager
    def flight(self, principal: Principal) -> Iterator[None]:
        """Raises Refusal (429)."""
        with _counted(self._in_flight, principal, "agent_calls_in_flight"):
            yield

    @contextmanager
    def stream(self, principal: Principal) -> Iterator[None]:
        """Raises Refusal (429, 503)."""
        if self._streams.total() >= limits.number("agent_streams_in_all"):
            raise full()
        with _counted(self._streams, principal, "agent_streams"):
            yield

    async def still_valid(self, principal: Principal, address: str) -> Principal | None:
        """For a stream: the same token with the rights of now. None when it counts no more."""
        try:
            return await self._reader.run(partial(tokens.still_valid, principal.token.pk, address))
        except Unknown:
            return None


@contextmanager
def _counted(counts: "Counter[int]", principal: Principal, limit: str) -> Iterator[None]:
    pk = principal.token.pk
    if counts[pk] >= limits.number(limit):
        raise too_many(limit, 1.0)
    counts[pk] += 1
    try:
        yield
    finally:
        counts[pk] -= 1
        if counts[pk] <= 0:
            del counts[pk]


def too_many(limit: str, seconds: float) -> Refusal:
    data = {"reason": limit, "retryAfterMs": int(seconds * 1000)}
    return Refusal(
        429,
        QUOTA,
        f"Too many requests. {limits.stated(limit)} Try again in a moment.",
        data,
        headers={"Retry-After": str(max(1, round(seconds)))},
    )


def stopping() -> Refusal:
    return Refusal(503, QUOTA, "mcpadmin is stopping. Try again in a moment.", {"retryAfterMs": 1_000}, headers=_SOON)


def full() -> Refusal:
    words = f"All streams are in use. {limits.stated('agent_streams_in_all')} Try again in a moment."
    return Refusal(503, QUOTA, words, {"retryAfterMs": 10_000}, headers={"Retry-After": "10"})


def _unauthorized(words: str, slug: str, *, known: bool = False) -> Refusal:
    challenge = metadata.challenge(slug, "invalid_token" if known else "", " ".join(metadata.DEFAULT_SCOPES))
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
