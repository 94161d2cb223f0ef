"""Who answers a server's questions, and how many it may ask."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from ..protocol import asked as rules
from ..protocol.asked import Asked, Root
from ..protocol.events import Event, ServerAsked
from ..protocol.flow import TokenBucket
from ..protocol.limits import Limits

#: Answers one question, or raises Refused. Runs in a task of its own, which is cancelled (with a Gone that says why)
#: when nobody wants the answer any more. Any other error reaches the server as "Internal error", without words of ours.
Answer = Callable[[Asked], Awaitable[Mapping[str, Any]]]

_MINUTE: Final = 60.0


class Answers:
    """`tell` gets an event for each question that somebody has to answer."""

    def __init__(
        self,
        answers: Mapping[str, Answer],
        roots: Sequence[Root],
        limits: Limits,
        tell: Callable[[Event], None],
    ) -> None:
        self._answers = dict(answers)
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        per_minute = limits.server_requests_per_minute
        self._bucket = TokenBucket(per_minute / _MINUTE, per_minute)
        self.roots = tuple(roots)

    @property
    def methods(self) -> frozenset[str]:
        return frozenset(self._answers)

    def admit(self) -> bool:
        """Count one more question; False when the server asked too many in the last minute."""
        return self._bucket.allow(self._loop.time())

    async def put(self, asked: Asked) -> dict[str, Any]:
        """The answer, fit to be sent. Raises Refused, and whatever the answer itself raises."""
        if asked.method == rules.LIST_ROOTS:
            return {"roots": [root.wire() for root in self.roots]}
        self._tell(ServerAsked(asked.method, asked.origin, asked.key[:200], asked.tag))
        return rules.checked_answer(asked, await self._answers[asked.method](asked))
