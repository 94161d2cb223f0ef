"""The tasks extension on the official Python SDK 2.x, through its extension interface: `stdio` or `http`."""

import itertools
import sys
from pathlib import Path
from typing import Any

from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from mcp.types import RequestParams

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "peers"))
from serving import serve

ASK = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"v": {"type": "string"}}}}


class About(RequestParams):
    taskId: str
    inputResponses: dict[str, Any] | None = None


class Tasks(Extension):
    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._looks: dict[str, int] = {}
        self._answers: dict[str, dict[str, Any]] = {}

    def methods(self):
        return [
            MethodBinding("tasks/get", About, self.get),
            MethodBinding("tasks/update", About, self.update),
            MethodBinding("tasks/cancel", About, self.cancel),
        ]

    async def intercept_tool_call(self, params, ctx, call_next):
        if params.name != "ask":
            return await call_next(ctx)
        task_id = f"sdk-{next(self._numbers)}"
        self._looks[task_id] = 0
        return {"resultType": "task", **self.state(task_id, "working")}

    def state(self, task_id: str, status: str) -> dict[str, Any]:
        at = "2026-08-01T10:00:00Z"
        times = {"createdAt": at, "lastUpdatedAt": at, "ttlMs": 60_000, "pollIntervalMs": 100}
        return {"taskId": task_id, "status": status, **times}

    async def get(self, ctx, params):
        task_id = params.taskId
        self._looks[task_id] += 1
        if self._looks[task_id] == 1:
            return self.state(task_id, "working")
        if task_id not in self._answers:
            wanted = {"inputRequests": {"which": {"method": "elicitation/create", "params": ASK}}}
            return self.state(task_id, "input_required") | wanted
        text = str(self._answers[task_id]["which"]["content"]["v"])
        return self.state(task_id, "completed") | {"result": {"content": [{"type": "text", "text": text}]}}

    async def update(self, ctx, params):
        self._answers[params.taskId] = params.inputResponses
        return {}

    async def cancel(self, ctx, params):
        return {}


server = MCPServer("sdk2-tasks", version="1", extensions=[Tasks()], log_level="WARNING")


@server.tool()
def ask() -> str:
    return "never reached: the extension makes it a task"


if __name__ == "__main__":
    serve(lambda: server.run("stdio"), server.streamable_http_app, server.streamable_http_app)
