"""Authenticates agents and enforces their limits: tokens, and how much each may do."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from math import ceil
from typing import Final

import structlog

from servers import limits
from servers.agents import tokens
from servers.agents.addresses import address_of, slug_of
from servers.agents.oauth import metadata
from servers.agents.policies import Policies
from servers.agents.tokens import Principal, Unknown
from servers.audit.record import Actor, Event
from servers.audit.writer import AuditUnavailable, WriterBusy, writer
from servers.enums import ActionSource, AuditAction, AuditOutcome
from sessions.agents.call_request import CallRequest
from sessions.agents.endpoints import Entry
from sessions.agents.exchange import Exchange
from sessions.agents.policy import policy_check, quotas
from sessions.agents.policy.counting import Counted, Counting, Exceeded, InFlight, Rate
from sessions.agents.policy.policy_check import PolicyOwner
from sessions.agents.recent import Recent
from sessions.live.hub import Hub
from sessions.mcp.core import methods
from sessions.mcp.server.refusals import QUOTA, UNAUTHORIZED, Refusal, later

_MOST_NOTED: Final = 10_000
_NOTED_SECONDS: Final = 60.0
#: time within which a replaced stream ends, even in another web process
_REPLACED_SECONDS: Final = 2.0
log = structlog.get_logger(__name__)


class Admission:
    """Decides whether a request's token is valid, and whether another request or stream is accepted. `forget()` drops
    everything cached about tokens, because permissions or tokens changed."""

    def __init__(self, hub: Hub) -> None:
        self._reader = hub.reader
        self._known: Recent[bytes, Principal] = Recent()
        self._counting = Counting()
        self._streams = 0
        self._used: OrderedDict[int, float] = OrderedDict()
        self._refused: OrderedDict[int, float] = OrderedDict()
        #: this process is stopping: streams end in an orderly way, and no request is accepted
        self.draining = False
        self._drains: list[Callable[[], None]] = []

    def drain(self) -> None:
        self.draining = True
        for callback in list(self._drains):
            callback()

    def on_drain(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Returns a function that removes the callback."""
        self._drains.append(callback)
        return partial(self._drains.remove, callback)

    def forget(self) -> None:
        self._known.forget()

    # --- tokens --------------------------------------------------------------------------------------------------
    async def principal(self, authorization: str, address: str, slug: str) -> Principal:
        """The principal of a bearer token at the endpoint `slug`. Raises Refusal (401), which names the authorization
        server."""
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() != "bearer" or not (text := text.strip()):
            words = "Sign in with OAuth, or send a token: Authorization: Bearer mca_…. Create one on the Agents page."
            raise _unauthorized(words, slug)
        found = await self._known_or_read(text, address, slug)
        if found.token.resource and found.token.resource != address_of(slug):
            raise _unauthorized("This token is for another endpoint.", slug, known=True)
        return found

    async def caller(self, authorization: str, address: str) -> Principal:
        """The principal of a bearer token at the HTTP API, which is not an endpoint: the caller decides what a grant
        for one endpoint may do there. Raises Refusal (401)."""
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() != "bearer" or not (text := text.strip()):
            raise _unauthorized("Send a token from the Agents page: Authorization: Bearer mca_….", None)
        found = await self._known_or_read(text, address, None)
        if found.token.resource and not slug_of(found.token.resource):
            raise _unauthorized("This token is for another address of mcpadmin.", None, known=True)
        return found

    async def _known_or_read(self, text: str, address: str, slug: str | None) -> Principal:
        key = hashlib.sha256(f"{address} {text}".encode()).digest()
        if (known := self._known.get(key)) is not None:
            return known
        generation = self._known.generation
        try:
            found = await self._reader.run(partial(tokens.principal_of, text, address))
        except Unknown as unknown:
            await self._note_refusal(unknown, address)
            raise no_longer_valid(slug) from None
        self._known.keep(key, found, generation)
        return found

    async def _note_refusal(self, unknown: Unknown, address: str) -> None:
        """Records a genuine token that is no longer valid, but not any text that looks like one. The event is durable
        before the program is told, so that no refusal is missing from the log."""
        token = unknown.token
        log.warning("agent_refused", why=unknown.why, ip=address, token=token.shown if token else None)
        if token is None or not _due(self._refused, token.pk):
            return
        actor = Actor(token.user_id, token.user.get_username(), address, way=ActionSource.AGENT)
        details = {"token": str(token.uid), "why": unknown.why}
        event = Event(AuditAction.AGENT_TOKEN_REFUSE, AuditOutcome.DENIED, actor, subject=token.name, details=details)
        try:
            await writer().durable(writer().submit(lambda: None, lambda _: [event]))
        except AuditUnavailable as problem:
            self._refused.pop(token.pk, None)  # the next refusal is recorded instead
            log.error("agent_refusal_not_recorded", token=token.shown, problem=str(problem)[:200])

    def note_use(self, principal: Principal, address: str, program: str) -> None:
        if _due(self._used, principal.token.pk):
            with suppress(WriterBusy):
                writer().submit(partial(tokens.used, principal.token.pk, address, program), low_priority=True)

    # --- limits --------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def request(self, principal: Principal) -> AsyncIterator[None]:
        """Counts against the limits of the token and its person. Raises Refusal (429)."""
        async with self._counted(quotas.rates_of(principal), quotas.flights_of(principal)):
            yield

    async def admit(self, principal: Principal) -> None:
        """Check only the rates, before it is known whether the request may wait. Raises Refusal (429)."""
        async with self._counted(quotas.rates_of(principal), ()):
            return

    @asynccontextmanager
    async def flight(self, principal: Principal) -> AsyncIterator[None]:
        """After `admit`: a request that may wait. Raises Refusal (429)."""
        async with self._counted((), quotas.flights_of(principal)):
            yield

    @asynccontextmanager
    async def at(self, owner: PolicyOwner) -> AsyncIterator[None]:
        """Counts against the limits of the endpoint or bundle, if it has any. Raises Refusal (429)."""
        known = policy_check.memory.known([owner])
        policy, *_ = known if known is not None else await self._reader.run(partial(policy_check.memory.read, [owner]))
        async with self._counted(*quotas.of_owner(owner, policy)):
            yield

    @asynccontextmanager
    async def call(self, exchange: Exchange, asked: CallRequest) -> AsyncIterator[Counted]:
        """Counts against the limits of its tool, resource or prompt, and of the server behind a bundle. Raises Refusal
        (429). A request over a limit of a rule continues: it may lead to an earlier call, and then does not count."""
        known = await self._policies(exchange.entry)
        rates = quotas.of_rules(known, exchange, asked)
        async with self._counting.revocable(rates, *quotas.of_call(known, exchange)) as counted:
            if counted.exceeded is not None and counted.exceeded.name != quotas.BY_RULES:
                raise too_many(counted.exceeded)
            yield counted

    async def repeats(self, exchange: Exchange, asked: CallRequest) -> bool:
        """Whether identical calls come too often for the endpoint. False if it sets no limit."""
        known = await self._policies(exchange.entry)
        most = known.equal_calls if asked.method == methods.TOOLS_CALL else None
        if most is None:
            return False
        rate = Rate(
            f"equal:{asked.same(exchange)}", most, 60.0, "equal_calls", lambda: ""
        )  # asks a person; refuses nothing
        async with self._counting.enter([rate]) as exceeded:
            return exceeded is not None

    async def _policies(self, entry: Entry) -> Policies:
        known = policy_check.remembered(entry)
        return known if known is not None else await self._reader.run(partial(policy_check.policies_of, entry))

    @asynccontextmanager
    async def stream(self, principal: Principal, *, replaces: bool = False) -> AsyncIterator[None]:
        """`replaces`: another stream is ending, and this one waits for its place. Raises Refusal (429, 503)."""
        until = time.monotonic() + (_REPLACED_SECONDS if replaces else 0.0)
        async with AsyncExitStack() as place:
            while True:
                try:
                    await place.enter_async_context(self._place_of_stream(principal))
                    break
                except Refusal:
                    if time.monotonic() >= until:
                        raise
                await asyncio.sleep(_REPLACED_SECONDS / 20)
            yield

    @asynccontextmanager
    async def _place_of_stream(self, principal: Principal) -> AsyncIterator[None]:
        if self._streams >= limits.number("agent_streams_in_all"):
            raise full()
        self._streams += 1
        try:
            async with self._counted((), quotas.streams_of(principal)):
                yield
        finally:
            self._streams -= 1

    @asynccontextmanager
    async def _counted(self, rates: Sequence[Rate], flights: Sequence[InFlight]) -> AsyncIterator[None]:
        async with self._counting.enter(rates, flights) as exceeded:
            if exceeded is not None:
                raise too_many(exceeded)
            yield

    async def still_valid(self, principal: Principal, address: str) -> Principal | None:
        """For a stream: the same token with its current permissions. None if it is no longer valid."""
        try:
            return await self._reader.run(partial(tokens.still_valid, principal.token.pk, address))
        except Unknown:
            return None


def too_many(exceeded: Exceeded) -> Refusal:
    seconds = exceeded.retry_seconds
    alone = " Redis is unreachable, so each web process counts on its own." if exceeded.alone else ""
    words = f"Too many requests. {exceeded.words}{alone} Try again in {ceil(seconds)} s."
    return later(429, QUOTA, words, seconds, {"reason": exceeded.name})


def stopping() -> Refusal:
    words = "mcpadmin is stopping. Try again in a moment."
    return later(503, QUOTA, words, 1, headers={"Connection": "close"})


def full() -> Refusal:
    words = f"All streams are in use. {limits.stated('agent_streams_in_all')} Try again in a moment."
    return later(503, QUOTA, words, 10)


def no_longer_valid(slug: str | None) -> Refusal:
    return _unauthorized("This token is unknown, expired, revoked or not allowed from this address.", slug, known=True)


def _unauthorized(words: str, slug: str | None, *, known: bool = False) -> Refusal:
    """`slug` None: there is no endpoint whose metadata would lead to a token."""
    error = "invalid_token" if known else ""
    if slug is None:
        challenge = f'Bearer error="{error}"' if error else "Bearer"
    else:
        challenge = metadata.challenge(slug, error, " ".join(metadata.DEFAULT_SCOPES))
    return Refusal(401, UNAUTHORIZED, words, headers={"WWW-Authenticate": challenge})


def _due(times: "OrderedDict[int, float]", key: int) -> bool:
    now = time.monotonic()
    if now - times.get(key, float("-inf")) < _NOTED_SECONDS:
        return False
    times[key] = now
    while len(times) > _MOST_NOTED:
        times.popitem(last=False)
    return True
