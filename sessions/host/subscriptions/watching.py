"""What is watched in one open session: requested from the server as a whole, recorded in the rows, read on change.

Everything comes from the rows, so every owner of the session watches the same. One task handles the server's
notifications in order. Nothing here makes the client's reader wait.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import structlog
from django.conf import settings
from django.utils import timezone

from servers.audit import payload_privacy
from servers.crypto import SealError
from servers.enums import RedactedPart
from servers.models import Payload
from servers.privacy import redaction
from sessions.connections.lifecycle import Lease
from sessions.enums import VersionCause
from sessions.host.answer_redaction import Redactor, masked_words
from sessions.host.cancelling import cancel_all
from sessions.host.db import Database, DatabaseAway, RowsOrphaned, RowsRefused
from sessions.host.logs.session_log import ServerLog
from sessions.host.subscriptions.notification_counts import NotificationCounts
from sessions.host.subscriptions.reads import ReadReason, Reads
from sessions.mcp.client import Client
from sessions.mcp.core.backoff import Backoff
from sessions.mcp.core.errors import Fault, HttpError, McpError
from sessions.mcp.core.events import AcceptedSubscriptions, Following, FollowingLost, ListKind, ResourceUpdated
from sessions.mcp.core.listening import normal_form
from sessions.mcp.core.state import State
from sessions.subscriptions import versions, watches
from sessions.subscriptions.versions import NoContents, ReadContent
from sessions.subscriptions.watches import Watch

#: events that wait to be recorded; dropping those between a loss and the next agreement loses nothing
NEWS_KEPT: Final = 16
#: of a notification: a longer URI cannot match a subscription
URI_CHARS, PARTS = 8_192, 64
#: pauses before we send the request again after the client gave up
RETRY_FIRST, RETRY_CEILING = 10.0, 300.0
#: seconds that an agreement must last before the next pause is the first one again
STEADY_SECONDS: Final = 60.0
#: dropped notifications may have concerned any resource: all are read, but at most this often
SHED_EVERY_SECONDS: Final = 60.0

#: why a read failed, where neither the server nor the connection is the reason
NOT_STORED: Final = "not_stored"
#: what ends a session on a stream that all answers share, if it is the answer to a read
TOO_LARGE: Final = frozenset({Fault.MESSAGE_LIMIT, Fault.LINE_LIMIT})
#: seconds until a read that may have ended the session for everyone is repeated
HELD_SECONDS: Final = 3_600.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _PendingChanges:
    event: Following | FollowingLost
    at: datetime


def _and_parents(uri: str, watches: Mapping[str, Watch]) -> dict[int, Watch]:
    found: dict[int, Watch] = {}
    for _ in range(PARTS):
        if watch := watches.get(uri) or watches.get(uri + "/"):
            found[watch.pk] = watch
        uri = uri.rpartition("/")[0]
    return found


def _held(since: datetime) -> float:
    """At most that long: the clock may have been set back."""
    return HELD_SECONDS - min(HELD_SECONDS, max(0.0, (timezone.now() - since).total_seconds()))


class Watching:
    """`on_change` is called when a new version was stored. No resource was subscribed up to watch request
    `unwatched`."""

    def __init__(
        self,
        db: Database,
        lease: Lease,
        client: Client,
        redactor: Redactor,
        log: ServerLog,
        counts: NotificationCounts,
        on_change: Callable[[], None],
        unwatched: int = -1,
    ) -> None:
        self._db, self._lease, self._client, self._redactor, self._log = db, lease, client, redactor, log
        self._on_change = on_change
        self._reads = Reads(self._read)
        self._counts = counts
        self._watches: dict[str, Watch] = {}
        #: the same by normal form: servers that parse URIs name them so
        self._normal: dict[str, Watch] = {}
        self._listening: set[str] = set()
        self._lists: Collection[ListKind] = ()
        self._followed = False
        #: the resources of the last set that the server answered, while the client listens for it
        self._agreed_set: set[str] | None = None
        self._request_number, self._asked, self._unwatched = 0, -1, unwatched
        self._news: deque[_PendingChanges] = deque(maxlen=NEWS_KEPT)
        self._wake = asyncio.Event()
        self._backoff = Backoff(RETRY_FIRST, RETRY_CEILING)
        #: when the server last agreed, until that agreement is lost or the pauses start again
        self._agreed_at = float("inf")
        #: the resources that were read although the server agreed to notifications that it cannot send
        self._in_vain: set[str] = set()
        self._ask_at = self._poll_at = self._shed_at = float("inf")
        self._shed_read: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._over: tuple[str, datetime] | None = None
        #: one of these reads may have ended the session, and the server's words of it
        self._blamed: tuple[list[str], str] | None = None

    @property
    def needs_session(self) -> bool:
        """Whether the session must stay open for its subscriptions."""
        return bool(self._watches)

    # --- for the session ---------------------------------------------------------------------------------------------
    def serve(self, request_number: int, lists: Collection[ListKind]) -> None:
        """The session is ready. `lists`: those whose changes are requested. `request_number`: see McpSession.watch_requested."""
        if self._closed:
            return
        self._request_number, self._lists = request_number, lists
        self._shed_at = self._now()
        self._task = asyncio.create_task(self._run(), name="watch resources")

    def subscriptions_changed(self, request_number: int) -> None:
        """A subscription was added, removed or got other settings."""
        if request_number > self._request_number:
            self._request_number = request_number
            self._wake.set()

    def over(self, error: McpError | None) -> None:
        """The connection has ended; records the reason and the time."""
        if self._over is None:
            words = "The session was closed."
            if error is not None:
                words = f"Connection lost: {masked_words(error.detail, self._redactor)}"
            self._over = (words, timezone.now())

    async def close(self) -> None:
        """Record that the session no longer listens, if it is still ours."""
        task, self._task, self._closed = self._task, None, True
        if task is None:
            return
        self.over(None)
        if self._shed_read is not None:
            self._shed_read.cancel()
        await cancel_all(task)
        await self._reads.close()
        await self._counts.close()
        if self._watches and self._over:
            reason, at = self._over
            await self._record_blame(at)
            await self._db.persist(partial(watches.waiting, self._lease, reason, at))
        self._watches.clear()

    # --- notifications: from the client's reader ----------------------------------------------------------------------
    def updated(self, event: ResourceUpdated) -> None:
        for watch in self._watches_for(event.uri):
            self._counts.note(watch.pk)
            self._reads.request(watch.uri, ReadReason(VersionCause.UPDATED, events=1))

    def received(self, event: Following | FollowingLost) -> None:
        self._news.append(_PendingChanges(event, timezone.now()))
        self._wake.set()

    def shed(self) -> None:
        """Notifications were dropped before they reached us. Those of a moment lead to one read, and those within the pause
        after it to one at its end."""
        if self._task is not None and self._shed_read is None:
            self._shed_read = asyncio.get_running_loop().call_at(self._shed_at, self._read_shed)

    def _read_shed(self) -> None:
        self._shed_read, self._shed_at = None, self._now() + SHED_EVERY_SECONDS
        self._read_all(self._listening, VersionCause.AFTER_GAP)

    def _watches_for(self, uri: str) -> Collection[Watch]:
        """The resource itself and its parents: a server may report a part of the resource that it was asked to watch, and
        does so once for all of them."""
        if len(uri) > URI_CHARS or not self._watches:
            return ()
        return (_and_parents(uri, self._watches) | _and_parents(normal_form(uri), self._normal)).values()

    # --- the task -----------------------------------------------------------------------------------------------------
    async def _run(self) -> None:
        if self._unwatched < 0:
            await self._db.persist(partial(watches.left_over, self._lease, timezone.now()))
        while True:
            try:
                await self._watch()
            except RowsOrphaned:  # the server has been deleted, and its session ends
                return
            except Exception:  # a bug of ours must not end the watch unnoticed: request everything again
                log.exception("host.watching_failed", session=str(self._lease.session_uid))
                await asyncio.sleep(RETRY_FIRST)
                self._asked, self._agreed_set = -1, None

    async def _watch(self) -> None:
        while True:
            self._wake.clear()
            if self._request_number > self._asked or self._now() >= self._ask_at:
                await self._ask()
            while self._news:
                await self._on_event(self._news.popleft())
            self._poll()
            await self._rest()

    async def _rest(self) -> None:
        moment = min(self._ask_at, self._poll_at)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(None if moment == float("inf") else moment):
                await self._wake.wait()

    async def _ask(self) -> None:
        """Send the server the whole set of the rows, unless all of it is in force: a new stream for the same set would only
        bring each notification twice for a while."""
        request_number, self._ask_at = self._request_number, float("inf")
        try:
            if request_number > self._unwatched:
                await self._read_rows()
            in_force = self._agreed_set == self._watches.keys() == self._listening
            if not in_force and (self._watches or self._lists or self._followed):
                self._agreed(await self._follow())
        except DatabaseAway:
            self._ask_at = self._now() + 1.0
            return
        except McpError as error:
            self._ask_at = self._after_pause()
            await self._could_not_ask(error)
        self._asked = request_number

    def _after_pause(self) -> float:
        if self._now() - self._agreed_at >= STEADY_SECONDS:
            self._backoff.reset()
        self._agreed_at = float("inf")
        return self._now() + self._backoff.delay()

    async def _follow(self) -> AcceptedSubscriptions:
        try:
            return await self._client.follow(self._watches.keys(), self._lists)
        except HttpError as error:
            if error.status != HTTPStatus.CONFLICT or not self._followed:
                raise
        # The stream for the set before is in the way: the server allows one at a time.
        await self._client.follow()
        self._agreed_set = None
        await self._lose("The server allows one stream at a time, and another set was requested.", timezone.now())
        return await self._client.follow(self._watches.keys(), self._lists)

    async def _read_rows(self) -> None:
        rows = await self._db.read(partial(watches.watched, self._lease))
        self._watches = {watch.uri: watch for watch in rows}
        self._normal = {normal_form(watch.uri): watch for watch in rows}
        suspects = {watch.uri: _held(watch.ended_session_at) for watch in rows if watch.ended_session_at is not None}
        self._reads.keep({watch.uri: watch.interval for watch in rows}, suspects)
        self._listening &= {watch.uri for watch in rows if not watch.unread}
        asked = [watch.pk for watch in rows if watch.uri not in self._listening]
        if asked:
            await self._db.persist(partial(watches.requested, self._lease, asked, timezone.now()))

    def _agreed(self, honoured: AcceptedSubscriptions) -> None:
        """Most agreements have already arrived as an event; a refusal of everything has not."""
        self._followed, self._agreed_set = True, set(self._watches)
        if honoured.passing:
            self._ask_at = self._after_pause()
        if not any(isinstance(news.event, Following) and news.event.honoured == honoured for news in self._news):
            self._news.append(_PendingChanges(Following(honoured), timezone.now()))

    async def _could_not_ask(self, error: McpError) -> None:
        words = masked_words(error.detail, self._redactor)
        if self._lists and not self._watches:
            self._log.host(f"Not listening for list changes: {words}", "notice")
        elif self._client.state is State.READY:  # what the server agreed to before stays in force
            await self._lose(f"Request failed: {words}", timezone.now(), in_force=self._listening)

    # --- events, in order ---------------------------------------------------------------------------------------------
    async def _on_event(self, news: _PendingChanges) -> None:
        if isinstance(news.event, Following):
            lost = self._news[0].event if self._news else None
            if isinstance(lost, FollowingLost) and not lost.retried:
                await self._settle_in_vain(news.event.honoured, news.at)
            else:
                await self._settle(news.event.honoured, news.at)
            return
        await self._lose(masked_words(news.event.reason, self._redactor), news.at)
        if news.event.retried:
            self._in_vain.clear()
        else:
            self._agreed_set = None
            if not news.event.final:
                self._ask_at = min(self._ask_at, self._after_pause())

    async def _settle(self, honoured: AcceptedSubscriptions, at: datetime) -> None:
        listening = self._watches.keys() & honoured.resources
        new, self._listening = listening - self._listening, set(listening)
        if not honoured.passing:
            self._agreed_at = self._now()
        self._in_vain.clear()
        await self._record(honoured, listening, at)
        self._read_all(new, VersionCause.AFTER_GAP)

    async def _settle_in_vain(self, honoured: AcceptedSubscriptions, at: datetime) -> None:
        """The server agreed, and no notification can arrive. To show it as listening would only open a gap each time. Each
        resource is read once, then polled."""
        agreed = self._watches.keys() & honoured.resources
        new, self._in_vain = agreed - self._listening - self._in_vain, set(agreed)
        await self._record(honoured, self._listening & agreed, at, unheard=agreed)
        self._read_all(new, VersionCause.AFTER_GAP)

    async def _record(
        self, honoured: AcceptedSubscriptions, listening: Collection[str], at: datetime, unheard: Collection[str] = ()
    ) -> None:
        """`unheard`: the server agreed to them too, but sends nothing."""
        silent = self._watches.keys() - listening - set(unheard)
        passing = silent & honoured.passing
        pks = [self._watches[uri].pk for uri in listening]
        refused = {self._watches[uri].pk: self._refusal(uri, honoured) for uri in silent - passing}
        await self._db.persist(partial(watches.settled, self._lease, pks, refused, at))
        if passing and not unheard:
            words = masked_words(honoured.refused[min(passing)], self._redactor)
            await self._lose(f"Request failed: {words}", at, in_force=self._listening)
        if silent and settings.RESOURCE_POLL_SECONDS:
            self._poll_at = self._now()

    def _refusal(self, uri: str, honoured: AcceptedSubscriptions) -> str:
        words = masked_words(honoured.refused.get(uri, "The server did not accept this subscription."), self._redactor)
        seconds = settings.RESOURCE_POLL_SECONDS
        return f"{words} It is read every {seconds:g} s instead." if seconds else words

    async def _lose(self, reason: str, at: datetime, in_force: Collection[str] = ()) -> None:
        self._listening &= set(in_force)
        kept = [self._watches[uri].pk for uri in self._listening]
        await self._db.persist(partial(watches.lost, self._lease, reason, at, kept))
        if settings.RESOURCE_POLL_SECONDS:
            self._poll_at = min(self._poll_at, self._now() + settings.RESOURCE_POLL_SECONDS)

    # --- reads --------------------------------------------------------------------------------------------------------
    def _poll(self) -> None:
        """Read the resources for which the server sends no notifications."""
        if self._now() >= self._poll_at:
            silent = self._watches.keys() - self._listening
            self._poll_at = self._now() + settings.RESOURCE_POLL_SECONDS if silent else float("inf")
            self._read_all(silent, VersionCause.POLLED)

    def _read_all(self, uris: Collection[str], cause: VersionCause) -> None:
        for uri in list(uris):
            self._reads.request(uri, ReadReason(cause))

    async def _read(self, uri: str, reason: ReadReason) -> bool:
        watch, began = self._watches.get(uri), timezone.now()
        if watch is None:
            return True
        try:
            result = await self._client.read_resource(uri)
            content, packed = await self._db.read(partial(self._content, watch, result))
            found = ReadContent(content, reason.cause, reason.events, began, timezone.now(), packed)
            new = await self._db.persist(partial(versions.store, self._lease, watch.pk, found))
        except McpError as error:
            return await self._failed(watch, str(error.fault), error.detail)
        except NoContents as problem:
            return await self._failed(watch, str(Fault.INVALID_RESULT), str(problem))
        except SealError as problem:
            words = f"The content cannot be encrypted, so it was not stored. {problem}"
            return await self._failed(watch, NOT_STORED, words)
        except RowsRefused as problem:
            words = f"The database refused the content ({type(problem.__cause__).__name__}), so it was not stored."
            return await self._failed(watch, NOT_STORED, words)
        except DatabaseAway:
            return False
        if new:
            self._on_change()
        return True

    def _content(self, watch: Watch, result: dict[str, Any]) -> tuple[versions.Content, Payload | None]:
        """Call in a reader thread: large contents take time, and the rules are read from the database."""
        subject = redaction.Subject(RedactedPart.RESULT, self._lease.server_id, watch.uri)
        policy = payload_privacy.current()

        def masked(value: Any) -> Any:
            text, count = redaction.redacted(self._redactor.json_text(value), subject, policy)
            return json.loads(text) if count else self._redactor.value(value)

        content = versions.content_of(result, masked, self._redactor.json_text)
        return content, versions.packed(watch.pk, content)

    async def _failed(self, watch: Watch, fault: str, detail: str) -> bool:
        """A read that failed because its connection ended says nothing about the resource, unless its answer ended it."""
        words = masked_words(detail, self._redactor)
        if self._client.state is not State.READY:
            if fault in TOO_LARGE and self._blamed is None:
                self._blamed = (self._reads.under_way(), words)
        else:
            await self._db.persist(partial(watches.read_failed, self._lease, watch.pk, fault, words, timezone.now()))
        return False

    async def _record_blame(self, at: datetime) -> None:
        uris, words = self._blamed or ([], "")
        words = f"The session ended while this was read: {words} It is read again after {HELD_SECONDS / 60:g} minutes, or when someone subscribes again."
        for watch in [self._watches[uri] for uri in uris if uri in self._watches]:
            fault = watches.ENDED_SESSION
            await self._db.persist(partial(watches.read_failed, self._lease, watch.pk, fault, words, at))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
