"""The tasks extension of 2026-07-28 on the official Python SDK 2.x, over HTTP. Runs in the environment of sdk2.

The tool `slow` is done when the file TASK_RELEASE exists. TASK_LOG gets a line when it starts.
"""

import itertools
import os
from pathlib import Path
from typing import Any

from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from mcp.types import RequestParams
from serving import serve


def note_the_start() -> None:
    with Path(os.environ["TASK_LOG"]).open("a") as log:
        log.write("started\n")


def is_released() -> bool:
    return Path(os.environ["TASK_RELEASE"]).exists()


class About(RequestParams):
    taskId: str


class Tasks(Extension):
    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._cancelled: set[str] = set()

    def methods(self):
        return [MethodBinding("tasks/get", About, self.get), MethodBinding("tasks/cancel", About, self.cancel)]

    async def intercept_tool_call(self, params, ctx, call_next):
        note_the_start()
        return {"resultType": "task", **self.state(f"task-{next(self._numbers)}", "working")}

    def state(self, task_id: str, status: str) -> dict[str, Any]:
        at = "2026-08-01T10:00:00Z"
        words = {"statusMessage": "waiting for the release"} if status == "working" else {}
        times = {"createdAt": at, "lastUpdatedAt": at, "ttlMs": 600_000, "pollIntervalMs": 300}
        return {"taskId": task_id, "status": status, **times, **words}

    async def get(self, ctx, params):
        if params.taskId in self._cancelled:
            return self.state(params.taskId, "cancelled")
        if not is_released():
            return self.state(params.taskId, "working")
        result = {"content": [{"type": "text", "text": "released at last"}]}
        return self.state(params.taskId, "completed") | {"result": result}

    async def cancel(self, ctx, params):
        self._cancelled.add(params.taskId)
        return {}


server = MCPServer("sdk2-tasks", version="1", extensions=[Tasks()], log_level="WARNING")


@server.tool()
def slow() -> str:
    return "never reached: the extension makes it a task"


if __name__ == "__main__":
    serve(lambda: None, server.streamable_http_app, server.streamable_http_app)
