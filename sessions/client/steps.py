"""What the page *Test connection* is told while a connection is made."""

import asyncio
from collections.abc import Callable

from ..protocol.errors import McpError
from ..protocol.results import Step, StepName


class Steps:
    """One step at a time; `tell` gets started, then finished or failed with the seconds it took."""

    def __init__(self, tell: Callable[[Step], None] | None) -> None:
        self._tell = tell
        self._name: StepName | None = None
        self._since = 0.0

    @property
    def wanted(self) -> bool:
        return self._tell is not None

    def start(self, name: StepName) -> None:
        self._name, self._since = name, asyncio.get_running_loop().time()
        if self._tell is not None:
            self._tell(Step(name, "started"))

    def finish(self, detail: str) -> None:
        self._end("finished", detail, None)

    def fail(self, error: McpError) -> None:
        self._end("failed", error.detail, error)

    def _end(self, status: str, detail: str, error: McpError | None) -> None:
        name, self._name = self._name, None
        if self._tell is None or name is None:
            return
        seconds = asyncio.get_running_loop().time() - self._since
        self._tell(Step(name, "failed" if status == "failed" else "finished", seconds, detail, error))
