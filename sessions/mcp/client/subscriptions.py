"""Subscriptions to a server's change notifications: requested as one set, and again when the session was renewed.

Legacy: one request for each resource, by difference. Modern: one listen stream for everything (listening.py).

Source: 2025-11-25 *Resources / Subscriptions*; 2026-07-28 *Subscriptions*.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

from ..core import methods
from ..core.errors import Fault, McpError, NotReady, RpcError, TransportError
from ..core.events import AcceptedSubscriptions, Event, Following, FollowingLost, ListKind
from ..core.listening import Filter, passes, requestable
from ..core.session import Session
from ..core.tasks import declares_extension
from ..core.versions import Era
from .listening import Listening
from .pump import Pump
from .requester import Requester

#: subscribe requests in flight at a time
_AT_A_TIME: Final = 8


class Subscriptions:
    def __init__(self, requester: Requester) -> None:
        self._requester, self._session, self._pump = requester, requester.session, requester.pump
        #: made by the first `follow`: most sessions follow nothing
        self._following: _Following | None = None
        requester.on_renewed.append(self._renewed)

    async def follow(
        self, resources: Collection[str] = (), lists: Collection[ListKind] = (), tasks: Collection[str] = ()
    ) -> AcceptedSubscriptions:
        await self._requester.demand_open()
        if self._following is None:
            self._following = self._new_following()
            self._pump.listeners.append(self._following.on_event)
            self._pump.on_feed = self._following.feed_changed
        desired = Filter(frozenset(resources), frozenset(lists), frozenset(tasks))
        try:
            async with asyncio.timeout(self._requester.timeouts.total):
                return await self._following.follow(desired)
        except TimeoutError:
            words = f"The server did not confirm all subscriptions within {self._requester.timeouts.total:g} s."
            raise TransportError(Fault.TOTAL_DEADLINE, words, may_have_run=True) from None

    def _new_following(self) -> "_Following":
        async def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
            return await self._requester.request(method, params, self._requester.timeouts.request)

        listening = Listening(
            self._pump, self._session.listens, self._requester.exchange, self._requester.timeouts.request
        )
        return _Following(self._session, self._pump, _Subscribed(request), listening)

    def _renewed(self) -> None:
        if self._following is not None:
            self._following.restore()

    def stop(self) -> None:
        if self._following is not None:
            self._following.stop()


class _Following:
    """The desired set, in either era."""

    def __init__(self, session: Session, pump: Pump, subscribed: "_Subscribed", listening: Listening) -> None:
        self._session, self._pump = session, pump
        self._subscribed, self._listening = subscribed, listening
        self._desired, self._honoured = Filter(), AcceptedSubscriptions()
        self._one_at_a_time = asyncio.Lock()
        self._restoring: asyncio.Task[None] | None = None

    async def follow(self, desired: Filter) -> AcceptedSubscriptions:
        async with self._one_at_a_time:
            honoured = await self._ask(desired)
            self._desired = desired
            return honoured

    async def _ask(self, desired: Filter) -> AcceptedSubscriptions:
        session = self._session
        tasks = session.era is Era.MODERN and declares_extension(session.declared)
        requested, refused = requestable(desired, session.server_capabilities, tasks=tasks)
        if session.era is Era.MODERN:
            return await self._listening.follow(requested, refused)
        self._honoured = await self._subscribed.follow(requested, refused)
        self._pump.emit(Following(self._honoured))
        self._notify_feed_lost()
        return self._honoured

    def feed_changed(self) -> None:
        """The stream for a legacy HTTP server's unsolicited messages was lost, or is open again."""
        if not self._pump.feed_lost[0]:
            self._pump.emit(Following(self._honoured))
        self._notify_feed_lost()

    def _notify_feed_lost(self) -> None:
        reason, retried = self._pump.feed_lost
        if reason and (self._honoured.resources or self._honoured.lists):
            self._pump.emit(FollowingLost(reason, retried, final=not retried))

    def on_event(self, event: Event) -> None:
        if type(event) is Following and event.subscription is not None:
            self._listening.acknowledged(event)

    def restore(self) -> None:
        """The server forgot all subscriptions: request them again, in a separate task."""
        if self._restoring is not None:
            self._restoring.cancel()
        self._restoring = asyncio.create_task(self._restore(), name="mcp subscribe again")

    async def _restore(self) -> None:
        async with self._one_at_a_time:
            self._subscribed.forget()
            if not self._desired:
                return
            self._pump.emit(FollowingLost("The server lost the session and its subscriptions."))
            try:
                await self._ask(self._desired)
            except McpError as exc:
                self._pump.emit(FollowingLost(exc.detail, retried=False))

    def stop(self) -> None:
        self._listening.stop()
        if self._restoring is not None:
            self._restoring.cancel()


class _Subscribed:
    """The subscribed resources of a legacy session."""

    def __init__(self, request: Callable[[str, dict[str, Any]], Awaitable[object]]) -> None:
        self._request = request
        #: False: the server did not say whether it has this subscription
        self._held: dict[str, bool] = {}
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    def forget(self) -> None:
        self._held.clear()

    async def follow(self, requested: Filter, refused: Mapping[str, str]) -> AcceptedSubscriptions:
        gone = self._held.keys() - requested.resources
        new = [uri for uri in requested.resources if not self._held.get(uri)]
        await self._each(self._unsubscribe, gone)
        errors = await self._each(self._subscribe, new)
        refusals = {uri: error.detail or f"error {error.fault}" for uri, error in errors.items()}
        passing = frozenset(uri for uri, error in errors.items() if passes(error))
        honoured = requested.resources - refusals.keys()
        return AcceptedSubscriptions(honoured, requested.lists, refused={**refused, **refusals}, passing=passing)

    async def _each(self, act: Callable[[str], Awaitable[None]], uris: Collection[str]) -> dict[str, McpError]:
        """Returns the failures, by URI. NotReady: the session is over."""

        async def one(uri: str) -> McpError | None:
            async with self._slots:
                try:
                    await act(uri)
                except McpError as exc:
                    return exc
                return None

        errors = dict(zip(uris, await asyncio.gather(*map(one, uris)), strict=True))
        for error in errors.values():
            if isinstance(error, NotReady):
                raise error
        return {uri: error for uri, error in errors.items() if error is not None}

    async def _subscribe(self, uri: str) -> None:
        self._held[uri] = False
        try:
            await self._request(methods.RESOURCES_SUBSCRIBE, {"uri": uri})
            self._held[uri] = True
        except RpcError:
            del self._held[uri]
            raise

    async def _unsubscribe(self, uri: str) -> None:
        self._held[uri] = False
        try:
            await self._request(methods.RESOURCES_UNSUBSCRIBE, {"uri": uri})
        except RpcError:
            pass  # whatever its reason, the server has no such subscription
        del self._held[uri]
