"""Where agent requests come in. What is behind a URL rarely changes, so a web process reads it at most once every few
seconds, unless a hint says that it changed: this read was a quarter of the cost of a list. What a call may do is
checked again when it is placed.
"""

from functools import partial

from servers import access
from servers.agents.tokens import Principal
from servers.enums import SignsInAs
from sessions import hints
from sessions.agents import endpoints
from sessions.agents.endpoints import Endpoint, Entry
from sessions.agents.recent import Recent
from sessions.live.hub import Hub
from sessions.models import AgentSession


class Entries:
    """Caches servers with one identity for all, and agent sessions. What is read for one person is not cached."""

    def __init__(self, hub: Hub) -> None:
        self._reader = hub.reader
        self._places: Recent[str, Endpoint] = Recent()
        #: by key, token and server; with whether the session follows resources
        self._sessions: Recent[tuple[str, int, int], tuple[AgentSession, bool]] = Recent()
        hub.watch(hints.SERVERS, lambda _: self._places.forget())
        hub.watch(hints.AGENT_SESSIONS, lambda _: self.forget_sessions())

    def forget_sessions(self) -> None:
        """Forget them at once, for requests in this process that arrive before the hint."""
        self._sessions.forget()

    async def read(self, principal: Principal, slug: str, session_key: str) -> Entry:
        """Read an entry. Empty `session_key`: without a session. Raises NoEndpoint and NoSession."""
        places, sessions = self._places.generation, self._sessions.generation
        entry = await self._reader.run(partial(endpoints.entry_of, principal, slug, session_key))
        place, session = entry.place, entry.session
        if isinstance(place, Endpoint) and place.connected and place.server.signs_in_as == SignsInAs.SHARED:
            self._places.keep(slug, place, places)
            if session is not None:
                key = (session_key, principal.token.pk, place.server.pk)
                self._sessions.keep(key, (session, entry.follows), sessions)
        return entry

    def recent(self, principal: Principal, slug: str, session_key: str) -> Entry | None:
        """The same from the cache; None if it must be read."""
        place = self._places.get(slug)
        if place is None or not access.may(principal.user, "view") or not principal.reaches(place.server.pk):
            return None
        if not session_key:
            return Entry(principal, place)
        known = self._sessions.get((session_key, principal.token.pk, place.server.pk))
        return Entry(principal, place, *known) if known is not None else None
