"""Standing streams: list changes and resource updates, to legacy sessions (GET) and modern listeners.

One task per stream, woken by hints. What changed is read from the rows, so a lost or forged hint does no harm.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from servers.agents.tokens import Principal
from sessions import hints
from sessions.agents import endpoints, follows, visits
from sessions.agents.answer import Answer
from sessions.agents.catalog import bundles, lists
from sessions.agents.connection import Connection
from sessions.agents.endpoints import BundleEndpoint, Entry
from sessions.agents.policy import policy_check
from sessions.agents.policy.admission import Admission
from sessions.agents.stream_reads import AWAY_SECONDS, CHECK_SECONDS, StreamReads, next_check
from sessions.hints.hint_rows import first_row
from sessions.live.hub import Hub
from sessions.mcp.core import jsonrpc, methods

KEEP_ALIVE_SECONDS: Final = 15.0
#: the first change of a list is announced at once, further ones at most once in this time
LISTS_SECONDS: Final = 5.0
#: updates of one resource within this time are announced as one
UPDATES_SECONDS: Final = 1.0
#: a bundle is read again at most once in this time, however much its servers do
MEMBERS_SECONDS: Final = 1.0
#: after hints may have been lost: how often, on average, permissions and lists are read again
RECHECK_SECONDS: Final = 60.0
#: ended visits that are waiting to be announced
MOST_VISITS: Final = 64
_TOLD: Final = {word: f"notifications/{word}/list_changed" for word in ("tools", "resources", "prompts")}
Params = dict[str, Any]
_AWAY: Final = (OperationalError, InterfaceError)
log = structlog.get_logger(__name__)


class Changes:
    """`mark`: adds the metadata of a modern notification. `granted`: the lists whose changes are announced. `stands`:
    this is the GET stream of a session, so the session's POST streams carry no updates."""

    def __init__(
        self,
        hub: Hub,
        admission: Admission,
        reads: StreamReads,
        entry: Entry,
        connection: Connection,
        *,
        granted: frozenset[str],
        mark: Callable[[Params], Params] = lambda params: params,
        stands: bool = False,
    ) -> None:
        self._hub, self._admission, self._entry, self._connection = hub, admission, entry, connection
        self._reads = reads
        self._granted, self._mark, self._stands = granted, mark, stands
        # Compared by the clocks of the hosts: two streams that open within the difference of these clocks may both
        # stay.
        self.stream, self.opened = uuid.uuid4(), time.time()
        self._wake = asyncio.Event()
        self._lists_dirty = self._permissions_dirty = self._members_dirty = self._replaced = False
        self._announced: set[str] = set()
        self._follows_dirty: set[UUID] = set()
        self._followed: dict[UUID, follows.Followed] = {}
        self._unfollow: dict[UUID, Callable[[], None]] = {}
        self._fingerprints: dict[str, str] = {}
        self._lists_told = float("-inf")
        self._recheck_at = float("inf")
        self._rechecked = time.monotonic()
        #: of the access token that opened it; the grant may go on
        self._until: datetime | None = None
        self._check_at = self._renewed = float("-inf")
        self._members_read = float("-inf")
        self._notified_at: dict[UUID, float] = {}
        #: elicitation ids, with the calls in which the server asked for the visits
        self._visits: list[tuple[str, UUID]] = []
        self._stops: list[Callable[[], None]] = []
        self._watched: set[str] = set()
        connection.on_close(self._wake.set)

    # --- what wakes it -------------------------------------------------------------------------------------------
    async def join(self) -> None:
        """Watch first, then read the current state, so that no change in between is missed."""
        self._watch_servers()
        self._watch(hints.USERS, self._on_user)
        self._watch(hints.POLICIES, self._on_permissions)
        self._stops.append(self._admission.on_drain(self._wake.set))
        if self._entry.session is not None:
            self._watch(f"agent.{self._entry.session.uid}", self._on_session)
        if self._granted:
            self._fingerprints = await self._hub.reader.run(partial(lists.fingerprints, self._entry))

    async def follow(self, rows: Iterable[follows.Followed]) -> None:
        """Follow these too, except resources that a bundle does not offer."""
        for one in await self._still_offered([one for one in rows if one.subscription not in self._followed]):
            self.add(one)

    def add(self, followed: follows.Followed) -> None:
        subscription = followed.subscription
        if subscription in self._followed:
            return
        self._followed[subscription] = followed
        watcher = partial(self._on_subscription, subscription)
        self._unfollow[subscription] = self._hub.watch(f"subscription.{subscription}", watcher)
        self._follows_dirty.add(subscription)  # it may have changed between its reading and this watch

    def _keep(self, rows: Iterable[follows.Followed]) -> None:
        """Follow only these from now on."""
        for subscription in self._followed.keys() - {one.subscription for one in rows}:
            del self._followed[subscription]
            self._unfollow.pop(subscription)()
            self._follows_dirty.discard(subscription)
            self._notified_at.pop(subscription, None)

    async def _still_offered(self, rows: Collection[follows.Followed]) -> Collection[follows.Followed]:
        if not rows or not isinstance(self._entry.place, BundleEndpoint):
            return rows
        readable = await self._hub.reader.run(partial(bundles.readable, self._entry, {one.uri for one in rows}))
        return [one for one in rows if one.uri in readable]

    def _watch_servers(self) -> None:
        for topic in set(self._entry.place.topics) - self._watched:
            self._watched.add(topic)
            # What a bundle offers may have changed; of its servers there are many hints, and few change anything.
            self._watch(topic, self._on_permissions if topic.startswith("bundle.") else self._on_server)

    def _watch(self, topic: str, watcher: Callable[[dict[str, Any] | None], None]) -> None:
        self._stops.append(self._hub.watch(topic, watcher))

    def _suspect(self) -> None:
        """All streams learn at the same moment that hints may have been lost, so their reads are spread over time."""
        if self._recheck_at == float("inf"):
            pause, delay = random.uniform(0.5, 1.5) * RECHECK_SECONDS, random.uniform(0.0, CHECK_SECONDS)  # noqa: S311  # spreads load, guards nothing
            self._recheck_at = max(self._rechecked + pause, time.monotonic() + delay)

    def _on_server(self, hint: dict[str, Any] | None) -> None:
        if hint is None:
            return self._suspect()
        if hint.get("kind") == "visit":
            return self._on_visit(hint)
        if isinstance(self._entry.place, BundleEndpoint):  # its members and their states are part of what is listed
            if hint.get("kind") != "call":
                self._members_dirty = True
                self._wake.set()
            return
        if hint.get("kind") == "announced":
            return self._announce(hint)
        if hint.get("kind") != "call":
            self._lists_dirty = bool(self._granted)
            self._wake.set()

    def _announce(self, hint: dict[str, Any]) -> None:
        """Announced by the server, on the session that this agent's calls use."""
        session = self._entry.endpoint.session
        for row in hint.get("rows") or []:
            named = row.get("lists") if isinstance(row, dict) else None
            if session is not None and isinstance(named, list) and row.get("session") == str(session.uid):
                self._announced |= self._granted.intersection(word for word in named if isinstance(word, str))
        self._lists_dirty = self._lists_dirty or bool(self._announced)
        self._wake.set()

    def _on_visit(self, hint: dict[str, Any]) -> None:
        """The visit of a call at this server, which may belong to another agent."""
        session = self._entry.session
        if self._stands and session is not None and visits.heard_by(session.revision, session.capabilities):
            self._visits = (self._visits + visits.of_hint(hint))[:MOST_VISITS]
            self._wake.set()

    def _on_user(self, hint: dict[str, Any] | None) -> None:
        users = {row.get("user") for row in (hint or {}).get("rows") or [] if isinstance(row, dict)}
        if hint is None or not users.isdisjoint({None, self._entry.principal.token.user_id}):
            self._on_permissions(hint)

    def _on_permissions(self, hint: dict[str, Any] | None) -> None:
        if hint is None:
            return self._suspect()
        self._permissions_dirty = True
        self._wake.set()

    def _on_session(self, hint: dict[str, Any] | None) -> None:
        """The session now follows other resources, or another of its streams took over: the newest wins."""
        if hint is None:
            return self._suspect()
        row = first_row(hint.get("rows"))
        newest, newest_post = row.get("stream"), row.get("post")
        if newest is not None or newest_post is not None:
            opened = row.get("opened")
            if isinstance(opened, float) and opened < self.opened:
                return  # a late message of an older stream
            mine = (str(self.stream), None)
            self._replaced = self._replaced or newest not in mine or (not self._stands and newest_post not in mine)
        else:
            self._permissions_dirty = True
        self._wake.set()

    def _on_subscription(self, subscription: UUID, hint: dict[str, Any] | None) -> None:
        if subscription in self._followed:
            self._follows_dirty.add(subscription)
            self._wake.set()

    # --- the stream ----------------------------------------------------------------------------------------------
    async def run(self, answer: Answer) -> None:
        """Runs until the agent leaves, its session or token ends, or another stream takes over. While the database is
        away it stays open: all streams would come back at once. What could not be read stays dirty."""
        self._until = self._entry.principal.until
        beat = self._renewed = time.monotonic()
        self._check_at, pause = next_check(beat), AWAY_SECONDS[0]
        while not self._ends:
            now = time.monotonic()
            if now - beat >= KEEP_ALIVE_SECONDS:
                beat = now
                await answer.keep_alive()
            try:
                if not await self._notify(answer, now):
                    return
            except _AWAY as problem:
                if pause == AWAY_SECONDS[0]:
                    log.warning("agents.stream_not_read", problem=str(problem))
                await self._pause(pause)
                pause = min(2 * pause, AWAY_SECONDS[1])
                continue
            pause = AWAY_SECONDS[0]
            await self._wait(min(beat + KEEP_ALIVE_SECONDS, self._check_at))

    @property
    def _ends(self) -> bool:
        return self._connection.closed or self._replaced or self._admission.draining

    async def _notify(self, answer: Answer, now: float) -> bool:
        """Tell the agent what has changed. False if it may hear no more."""
        members_due = self._members_dirty and now >= self._members_read + MEMBERS_SECONDS
        if self._permissions_dirty or members_due or now >= self._recheck_at:
            self._permissions_dirty = self._members_dirty = False
            self._recheck_at, self._rechecked, self._members_read = float("inf"), now, now
            before = self._entry
            try:
                if not await self._still_valid():
                    return False
            except _AWAY:  # compared with the same again
                self._entry, self._permissions_dirty = before, True
                raise
        if now >= self._check_at:
            if self._until is not None and self._until <= timezone.now():
                return False
            if not await self._reads.tokens.get(self._entry.principal.token.pk):
                return False
            self._check_at = next_check(now)
        if (self._followed or self._stands) and now - self._renewed >= follows.RENEW_SECONDS:
            await self._hub.reader.work(self._renew)
            self._renewed = now
        await self._notify_lists(answer, now)
        await self._notify_updates(answer, now)
        await self._notify_visits(answer)
        return True

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._ends:  # hints wake it too
                    self._wake.clear()
                    await self._wake.wait()

    def _renew(self) -> None:
        if self._stands and self._entry.session is not None:
            follows.stands(self._entry.session)
        elif self._entry.session is None:
            follows.renew(self.stream)

    async def close(self) -> None:
        for stop in (*self._stops, *self._unfollow.values()):
            stop()
        with suppress(*_AWAY):  # then the rows are too old soon
            if self._stands and not self._replaced and self._entry.session is not None:
                await self._hub.reader.work(partial(follows.stands_no_more, self._entry.session))
            if self._entry.session is None and self._followed:
                await self._hub.reader.work(partial(follows.forget_stream, self.stream))

    async def _wait(self, until: float) -> None:
        times = [until]
        if self._members_dirty:
            times.append(self._members_read + MEMBERS_SECONDS)
        if self._lists_dirty:
            times.append(self._lists_told + LISTS_SECONDS)
        times += [self._notified_at.get(one, 0.0) + UPDATES_SECONDS for one in self._follows_dirty]
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.01, min(times) - time.monotonic())):
                await self._wake.wait()
        self._wake.clear()

    async def _still_valid(self) -> bool:
        principal = await self._admission.still_valid(self._entry.principal, self._connection.address)
        if principal is None:
            return False
        before = self._entry.place
        try:
            self._entry = await self._hub.reader.run(partial(self._entry_of, principal))
        except (endpoints.NoEndpoint, endpoints.NoSession):
            return False
        followed_before = set(self._followed)
        if bundles.readable_differ(before, self._entry.place):
            self._keep(await self._still_offered(list(self._followed.values())))
        if self._entry.session is None and (followed_before - self._followed.keys() or await self._denied()):
            return False  # a listener hears it by the end: it listens again, and the acknowledgement says what is left
        if self._entry.session is not None:
            followed = await self._hub.reader.run(partial(follows.of_session, self._entry.session))
            self._keep(followed)
            await self.follow(followed)
        self._watch_servers()
        self._lists_dirty = bool(self._granted)
        return True

    async def _denied(self) -> bool:
        """Whether a policy now keeps the agent from following one of its resources."""
        if not self._followed:
            return False
        known = await self._hub.reader.run(partial(policy_check.policies_by_server, self._entry))
        newest = await self._events_of(self._followed)
        return len(follows.allowed(known, self._followed, newest)) < len(newest)

    async def _events_of(self, subscriptions: Collection[UUID]) -> dict[UUID, follows.Events]:
        rows = await asyncio.gather(*(self._reads.events.get(one) for one in subscriptions))
        return {one: row for one, row in zip(subscriptions, rows, strict=True) if row is not None}

    def _entry_of(self, principal: Principal) -> Entry:
        key = self._entry.session.key if self._entry.session is not None else ""
        return endpoints.entry_of(principal, self._entry.place.slug, key)

    async def _notify_lists(self, answer: Answer, now: float) -> None:
        if not self._lists_dirty or now - self._lists_told < LISTS_SECONDS:
            return
        self._lists_dirty = False
        try:
            found = await self._hub.reader.run(partial(lists.fingerprints, self._entry))
        except _AWAY:
            self._lists_dirty = True
            raise
        different = {word for word in _TOLD if found[word] != self._fingerprints.get(word)}
        changed = [word for word in _TOLD if word in self._granted and word in different | self._announced]
        self._fingerprints, self._announced = found, set()
        for word in changed:
            self._lists_told = now
            await answer.event(jsonrpc.notification(_TOLD[word], self._mark({}) or None))

    async def _notify_visits(self, answer: Answer) -> None:
        if not self._visits or self._entry.session is None:
            return
        ended = self._visits
        calls = {call for _, call in ended}
        mine = await self._hub.reader.run(partial(visits.calls_of_session, self._entry.session.pk, calls))
        self._visits = self._visits[len(ended) :]  # without those that came meanwhile
        for identity, call in ended:
            if call in mine:
                await answer.event(visits.completed(identity))

    async def _notify_updates(self, answer: Answer, now: float) -> None:
        due = [one for one in self._follows_dirty if now - self._notified_at.get(one, float("-inf")) >= UPDATES_SECONDS]
        if not due:
            return
        self._follows_dirty -= set(due)
        try:
            newest = await self._events_of(due)
            known = policy_check.remembered_by_server(self._entry)
            if known is None:
                known = await self._hub.reader.run(partial(policy_check.policies_by_server, self._entry))
        except _AWAY:
            self._follows_dirty |= set(due)
            raise
        for subscription, found in follows.allowed(known, self._followed, newest).items():
            before = self._followed[subscription]
            if found.changed_since(before):
                self._followed[subscription] = replace(before, events=found.count, newest=found.newest)
                self._notified_at[subscription] = now
                params = self._mark({"uri": before.uri})
                await answer.event(jsonrpc.notification(methods.RESOURCE_UPDATED, params))


def take_over(session_uid: UUID, stream: "Changes", *, post: bool = False) -> None:
    """End the role of older streams of this session, in every web process. `post`: only of POST streams."""
    hints.agent_stream_opened(session_uid, stream.stream, stream.opened, post=post)
