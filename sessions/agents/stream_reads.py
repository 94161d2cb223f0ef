"""What the streams of one web process ask for at the same moments: one query answers all of them."""

from typing import Final
from uuid import UUID

from servers.agents import tokens
from sessions.agents import follows
from sessions.agents.follows import Events
from sessions.live.reader import BatchedReads, Reader

#: how soon a revoked token ends its streams, also without a hint. All streams of a process check at the same moments
CHECK_SECONDS: Final = 5.0


def next_check(now: float) -> float:
    return now - now % CHECK_SECONDS + CHECK_SECONDS


class StreamReads:
    def __init__(self, reader: Reader) -> None:
        #: whether a token, by its key, still counts
        self.tokens: BatchedReads[int, bool] = BatchedReads(reader, tokens.still_valid_keys)
        #: of subscriptions
        self.events: BatchedReads[UUID, Events] = BatchedReads(reader, follows.events_of)
