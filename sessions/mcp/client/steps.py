"""Progress of opening a connection, reported to the page *Test connection*."""

import asyncio
from collections.abc import Callable

from ..core.errors import McpError
from ..core.results import Step, StepName


class Steps:
    """One step at a time; `emit` receives started, then finished or failed with the seconds it took."""

    def __init__(self, emit: Callable[[Step], None] | None) -> None:
        self._emit = emit
        self._name: StepName | None = None
        self._since = 0.0

    @property
    def enabled(self) -> bool:
        return self._emit is not None

    def start(self, name: StepName) -> None:
        self._name, self._since = name, asyncio.get_running_loop().time()
        if self._emit is not None:
            self._emit(Step(name, "started"))

    def finish(self, detail: str) -> None:
        self._end("finished", detail, None)

    def fail(self, error: McpError) -> None:
        self._end("failed", error.detail, error)

    def _end(self, status: str, detail: str, error: McpError | None) -> None:
        name, self._name = self._name, None
        if self._emit is None or name is None:
            return
        seconds = asyncio.get_running_loop().time() - self._since
        self._emit(Step(name, "failed" if status == "failed" else "finished", seconds, detail, error))
