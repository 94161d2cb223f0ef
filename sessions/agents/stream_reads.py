"""What the streams of one web process ask for at the same moments: one query answers all of them."""

from uuid import UUID

from servers.agents import tokens
from sessions.agents import follows
from sessions.agents.follows import Events
from sessions.live.reader import Reader, Together


class StreamReads:
    def __init__(self, reader: Reader) -> None:
        #: whether a token, by its key, still counts
        self.tokens: Together[int, bool] = Together(reader, tokens.that_count)
        #: of subscriptions
        self.events: Together[UUID, Events] = Together(reader, follows.events_of)
