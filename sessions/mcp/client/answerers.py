"""Who answers a server's questions, and how many it may ask."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from ..core import input_requests as rules
from ..core.events import Event, ServerAsked
from ..core.flow import TokenBucket
from ..core.input_requests import InputRequest, Root
from ..core.limits import Limits

#: Answers one question, or raises Refused. Runs in its own task, which is cancelled (with a WithdrawalReason) when
#: the answer is no longer needed. Any other error reaches the server as "Internal error", without our text.
Answer = Callable[[InputRequest], Awaitable[Mapping[str, Any]]]

_MINUTE: Final = 60.0


class Answers:
    """`emit` receives an event for each question that needs an answer."""

    def __init__(
        self,
        answers: Mapping[str, Answer],
        roots: Sequence[Root],
        limits: Limits,
        emit: Callable[[Event], None],
    ) -> None:
        self._answers = dict(answers)
        self._emit = emit
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

    async def put(self, asked: InputRequest) -> dict[str, Any]:
        """The answer, ready to send. Raises Refused, and anything the answer itself raises."""
        if asked.method == rules.LIST_ROOTS:
            return {"roots": [root.wire() for root in self.roots]}
        self._emit(ServerAsked(asked.method, asked.origin, asked.key[:200], asked.tag))
        return rules.checked_answer(asked, await self._answers[asked.method](asked))
