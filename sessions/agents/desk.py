"""What the requests of one web process share."""

from functools import partial

from servers.agents.tokens import Principal
from sessions.agents import endpoints
from sessions.agents.calls import Calls
from sessions.agents.connection import Connection
from sessions.agents.endpoints import Entry
from sessions.agents.gate import Gate
from sessions.hints import USERS
from sessions.live.hub import Hub
from sessions.mcp.server import posted


class Desk:
    def __init__(self, hub: Hub) -> None:
        self.hub, self.reader = hub, hub.reader
        self.gate, self.calls = Gate(hub), Calls(hub)
        hub.watch(USERS, lambda _: self.gate.forget())

    async def entry(self, principal: Principal, connection: Connection, *, session: bool) -> Entry:
        key = connection.headers.get(posted.SESSION, "") if session else ""
        return await self.reader.run(partial(endpoints.entry_of, principal, connection.slug, key))
