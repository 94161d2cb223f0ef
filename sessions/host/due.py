"""Does the work that is due according to rows: looks on request, and handles only a few keys at once, each once at a
time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

import structlog

from sessions.host.cancelling import cancel_all
from sessions.host.db import Database, DatabaseAway

log = structlog.get_logger(__name__)
K = TypeVar("K", bound=Hashable)


class DueTasks(Generic[K]):
    """`due` reads the keys in the database's thread; `serve` claims a key and does its work, or nothing if another
    worker has the key. `name` appears in the names of tasks and in the log. `whose` returns the owner of a key: no
    owner may have more than `each` keys served at once."""

    def __init__(
        self,
        db: Database,
        name: str,
        due: Callable[[], Iterable[K]],
        serve: Callable[[K], Awaitable[Any]],
        *,
        at_once: int,
        whose: Callable[[K], Hashable] | None = None,
        each: int = 1,
    ) -> None:
        self._db, self._name, self._due, self._serve = db, name, due, serve
        self._whose, self._each = whose, each
        self._slots = asyncio.Semaphore(at_once)
        self._running: dict[K, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._again = False
        self.closed = False

    def look(self) -> None:
        """Call when something may be due."""
        self._again = True
        if not self.closed and self._looking is None:
            self._looking = asyncio.create_task(self._look(), name=f"look for {self._name}")

    async def close(self) -> None:
        """Abort the running work: it is repeated when its lease expires."""
        self.closed = True
        await cancel_all(*self._running.values(), self._looking)

    async def _look(self) -> None:
        try:
            while self._again and not self.closed:
                self._again = False
                for key in await self._db.read(self._due):
                    self._start(key)
        except DatabaseAway:
            pass  # the next tick looks again
        except Exception:  # a bug of ours here must not end later looks
            log.exception("host.due_not_read", of=self._name)
        finally:
            self._looking = None

    def _has_enough(self, key: K) -> bool:
        if self._whose is None:
            return False
        mine = self._whose(key)
        return sum(1 for other in self._running if self._whose(other) == mine) >= self._each

    def _start(self, key: K) -> None:
        if key not in self._running and not self._has_enough(key):
            task = self._running[key] = asyncio.create_task(self._run(key), name=f"serve {self._name}")
            task.add_done_callback(lambda _: self._running.pop(key, None))

    async def _run(self, key: K) -> None:
        try:
            async with self._slots:
                await self._serve(key)
            if self._whose is not None:
                self.look()  # the next key of the same owner may start
        except DatabaseAway:
            pass  # the lease expires, and a tick finds the key again
        except Exception:  # a bug of ours with one key must not end the others
            log.exception("host.due_not_served", of=self._name, key=str(key))
