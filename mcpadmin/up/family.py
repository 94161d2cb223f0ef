"""Every child of `up`: reaps what ends, tells its keeper, kills what fell to us from a part that died."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable

from mcpadmin.up import process
from mcpadmin.up.keeper import Keeper
from mcpadmin.up.sentry import Sentry

SWEEP_SECONDS = 5.0
# All parts together, so that a machine under load still sees the end of `up` within 10 s; the last one keeps its share.
STOP_SECONDS = 8.6
LAST_SECONDS = 0.7


class Family:
    def __init__(self, sentry: Sentry) -> None:
        self.keepers: list[Keeper] = []
        self.outsiders: set[int] = set()  # started by us and none of our business (the browser)
        self._sentry = sentry
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.TimerHandle | None = None
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._sweep()

    def _children(self) -> dict[int, Keeper]:
        return {keeper.child.pid: keeper for keeper in self.keepers if keeper.child}

    def _reap(self) -> None:
        children = self._children()
        for pid, status in process.reap():
            if pid == self._sentry.pid:
                self._sentry.revive(status)
            elif pid in children:
                self._end(children[pid], pid, status)
            self.outsiders.discard(pid)

    def _end(self, keeper: Keeper, pid: int, status: int) -> None:
        process.kill_group(pid, signal.SIGKILL)  # what it left in its group
        self._sentry.ended(pid)
        if keeper.child:
            keeper.child.ended(status)
        self._kill_adopted()

    def _sweep(self) -> None:
        """A stdio server's grandchild may fall to us while its worker lives on; no signal tells of that."""
        self._kill_adopted()
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _kill_adopted(self) -> list[int]:
        known = {*self._children(), self._sentry.pid, *self.outsiders}
        orphans = process.adopted(known)
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return orphans

    async def stop(self, order: Iterable[str], hurry: asyncio.Event) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        for name in order:
            stage = [keeper for keeper in self.keepers if keeper.part.name.partition("-")[0] == name]
            reserve = 0 if name == "valkey" else LAST_SECONDS
            at_most = max(0.1, deadline - reserve - time.monotonic())
            await asyncio.gather(*(keeper.stop(at_most, hurry) for keeper in stage))
        self._loop.remove_signal_handler(signal.SIGCHLD)
        if self._sweeping:
            self._sweeping.cancel()
        await self._bury()

    async def _bury(self) -> None:
        """A killed orphan leaves us its own children a moment later: twice nobody is the end."""
        deadline, quiet = time.monotonic() + 1.0, 0
        while quiet < 2 and time.monotonic() < deadline:
            quiet = 0 if self._kill_adopted() else quiet + 1
            await asyncio.sleep(0.01)
            list(process.reap())
