"""What the requests in one web process share."""

from servers.agents.tokens import Principal
from sessions.agents.calls.calls import Calls
from sessions.agents.connection import Connection
from sessions.agents.endpoints import Entry
from sessions.agents.entries import Entries
from sessions.agents.policy import policy_check
from sessions.agents.policy.admission import Admission
from sessions.agents.policy.policy_check import PolicyCheck
from sessions.agents.stream_reads import StreamReads
from sessions.hints import POLICIES, USERS
from sessions.live.hub import Hub
from sessions.mcp.server import posted


class Shared:
    def __init__(self, hub: Hub) -> None:
        self.hub, self.reader = hub, hub.reader
        self.admission = Admission(hub)
        self.entries = Entries(hub)
        self.stream_reads = StreamReads(hub.reader)
        self.calls = Calls(hub, self.admission, PolicyCheck(), self.stream_reads)
        hub.watch(POLICIES, lambda _: policy_check.memory.forget())
        for topic in (USERS, POLICIES):  # a principal has its token's policy
            hub.watch(topic, lambda _: self.admission.forget())

    async def entry(
        self, principal: Principal, connection: Connection, *, session: bool = True, recent: bool = False
    ) -> Entry:
        """The entry of a request. `recent`: it may be a few seconds old. Raises NoEndpoint and NoSession."""
        key = connection.headers.get(posted.SESSION, "") if session else ""
        connection.step = "entry"
        if recent and (known := self.entries.recent(principal, connection.slug, key)) is not None:
            return known
        return await self.entries.read(principal, connection.slug, key)
