"""Keeps one part running: starts it, says when it is ready, starts it again with backoff when it dies."""

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic

from mcpadmin.up.child import Child
from mcpadmin.up.output import Output
from mcpadmin.up.parts import Part
from mcpadmin.up.problems import StartProblem
from mcpadmin.up.process import describe_exit

FIRST_DELAY = 0.5
CEILING = 30.0
# A part that ran this long was well: its next death starts the backoff anew.
WELL_SECONDS = 60.0
# A part that dies this often without having served once will not heal by itself.
MAX_FALSE_STARTS = 4
# A first start that takes longer is worth a word.
SLOW_SECONDS = 30.0


class Keeper:
    def __init__(self, part: Part, env: Mapping[str, str], output: Output, on_start: Callable[[int], None]) -> None:
        self.part, self._env, self._output, self._on_start = part, env, output, on_start
        self.child: Child | None = None
        self.first_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deaths = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep(), name=f"keep {self.part.name}")
        self._task.add_done_callback(self._give_up)

    def _give_up(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (problem := task.exception()) and not self.first_ready.done():
            self.first_ready.set_exception(problem)

    async def _keep(self) -> None:
        while True:
            child = self.child = Child(self.part, self._env, self._output)
            self._on_start(child.pid)
            waiting = asyncio.create_task(self._say_ready(child))
            status = await asyncio.shield(child.exited)  # a stop cancels this task, not the end it waits for
            waiting.cancel()
            await asyncio.sleep(self._after_death(child, status))

    async def _say_ready(self, child: Child) -> None:
        task = asyncio.ensure_future(child.ready())
        try:
            await asyncio.wait_for(asyncio.shield(task), SLOW_SECONDS)
        except TimeoutError:
            self._output.say(f"{self.part.name} is not ready after {SLOW_SECONDS:.0f} s; still waiting")
            await task
        finally:
            task.cancel()
        again = " again" if self.first_ready.done() else ""
        self._output.say(f"{self.part.name} ready{again} in {monotonic() - child.started:.2f} s")
        if not self.first_ready.done():
            self.first_ready.set_result(None)

    def _after_death(self, child: Child, status: int) -> float:
        """Say it, and how long to wait before the next start."""
        if monotonic() - child.started > WELL_SECONDS:
            self._deaths = 0
        self._deaths += 1
        report = f"{self.part.name} {describe_exit(status)}"
        last = " / ".join(child.last_lines()[-3:])
        if not self.first_ready.done() and self._deaths >= MAX_FALSE_STARTS:
            raise StartProblem(
                f"{report} {self._deaths} times without becoming ready", f"Its last words: {last or '(none)'}"
            )
        delay = min(CEILING, FIRST_DELAY * 2 ** (self._deaths - 1))
        self._output.say(
            f"{report}; starting it again in {delay:.1f} s" + (f"; its last words: {last}" if last else "")
        )
        return delay

    async def stop(self, at_most: float, hurry: asyncio.Event) -> None:
        if self._task:
            self._task.cancel()
        if self.child:
            await self.child.stop(min(self.part.grace, at_most), hurry)
