"""What the streams in a web process ask for at the same time: one query serves all of them."""

from typing import Final
from uuid import UUID

from servers.agents import tokens
from sessions.agents import follows
from sessions.agents.follows import Events
from sessions.live.reader import BatchedReads, Reader

#: how soon a revoked token ends its streams, even without a hint. All streams in a process check at the same time
CHECK_SECONDS: Final = 5.0
#: between two reads while the database is away: twice as long each time, up to the second
AWAY_SECONDS: Final = (0.1, 2.0)


def next_check(now: float) -> float:
    return now - now % CHECK_SECONDS + CHECK_SECONDS


class StreamReads:
    def __init__(self, reader: Reader) -> None:
        #: whether a token, by its key, is still valid
        self.tokens: BatchedReads[int, bool] = BatchedReads(reader, tokens.still_valid_keys)
        #: events of subscriptions
        self.events: BatchedReads[UUID, Events] = BatchedReads(reader, follows.events_of)
