"""A scripted server whose tools become tasks, in either era. `python task_server.py legacy|modern` speaks stdio;
`over_http()` gives the same server to scripted_http. The tool's name selects the script of its task.

Standard library only above the last function, because each test starts it.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

ASK = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"v": {"type": "string"}}}}
#: seconds until the tool `slow` has a task
SLOW = 1.0
SUPPORT = {"plain": "forbidden", "quick": "optional"}
#: the state that each poll of a task finds; the last one repeats
STATES: dict[str, list[str]] = {
    "quick": ["working", "completed"],
    "fails": ["working", "failed"],
    "gives_up": ["cancelled"],
    "asks": ["input_required", "input_required", "input_required"],
    "asks_much": ["input_required"],
    "endless": ["working"],
    "slow": ["working"],
    "tells": ["working"],
    "spams": ["working"],
    "moves": ["working", "working", "completed"],
    "forgotten": ["forgotten"],
    "stumbles": ["busy", "working", "busy", "busy", "completed"],
    "falls": ["busy"],
    "mute": ["mute"],
    "dies": ["working", "exit"],
    "cut": ["completed"],
    "odd": ["meditating"],
    "other": ["other"],
}


class TaskServer:
    def __init__(self, era: str, *, poll: int = 100) -> None:
        self.modern = era == "modern"
        self.poll = poll
        self.seen: list[dict[str, Any]] = []
        self.tasks: dict[str, dict[str, Any]] = {}
        self.waiting: dict[str, Any] = {}

    def handle(self, message: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> None:
        self.seen.append(message)
        method, identity, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None:
            self._answered(message, send)
        elif identity is not None:
            outcome = self._outcome(method, params, identity, send)
            if outcome is not None:
                send({"jsonrpc": "2.0", "id": identity, **outcome})

    def _outcome(self, method: str, params: dict, identity: Any, send: Callable) -> dict[str, Any] | None:
        answer = getattr(self, "_" + method.replace("/", "_"), None)
        if answer is None or (
            (method == "server/discover") != self.modern and method in ("server/discover", "initialize")
        ):
            return {"error": {"code": -32601, "message": f"no {method}"}}
        if method.startswith("tasks/") and method != "tasks/list" and params["taskId"] not in self.tasks:
            return {"error": {"code": -32602, "message": "no such task"}}
        return answer(params, identity, send)

    def _server_discover(self, *_: Any) -> dict[str, Any]:
        capabilities = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
        return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}}

    def _initialize(self, *_: Any) -> dict[str, Any]:
        tasks = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        info = {"name": "tasks", "version": "1"}
        capabilities = {"tools": {"listChanged": True}, "tasks": tasks}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}}

    def _ping(self, *_: Any) -> dict[str, Any]:
        return {"result": {}}

    def _tools_list(self, *_: Any) -> dict[str, Any]:
        def tool(name: str) -> dict[str, Any]:
            support = SUPPORT.get(name, "required")
            return {"name": name, "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}}

        return {"result": {"tools": [tool(name) for name in ["plain", "seen", *STATES]]}}

    def _tools_call(self, params: dict, identity: Any, send: Callable) -> dict[str, Any]:
        name = params["name"]
        if name == "seen":
            return {"result": {"content": [{"type": "text", "text": json.dumps(self.seen)}]}}
        if name == "plain" or (not self.modern and "task" not in params):
            return {"result": {"content": [{"type": "text", "text": "at once"}]}}
        task_id = f"task-{len(self.tasks) + 1}"
        token = params.get("_meta", {}).get("progressToken")
        self.tasks[task_id] = {"script": name, "at": 0, "token": token}
        created = self._state(task_id, "working")
        return {"result": {**created, "resultType": "task"} if self.modern else {"task": created}}

    def _state(self, task_id: str, status: str) -> dict[str, Any]:
        names = ("ttlMs", "pollIntervalMs") if self.modern else ("ttl", "pollInterval")
        times = {"createdAt": "2026-08-01T10:00:00Z", "lastUpdatedAt": "2026-08-01T10:00:00Z"}
        return {"taskId": task_id, "status": status, names[0]: 60_000, names[1]: self.poll, **times}

    def _tasks_get(self, params: dict, identity: Any, send: Callable) -> dict[str, Any]:
        task_id = params["taskId"]
        task = self.tasks[task_id]
        script = STATES[task["script"]]
        status = script[min(task["at"], len(script) - 1)]
        task["at"] += 1
        self._news(task_id, task, send)
        if status == "exit":
            sys.exit(3)
        if status == "forgotten":
            return {"error": {"code": -32602, "message": "gone"}}
        if status == "busy":
            return {"error": {"code": -32603, "message": "busy"}}
        if status == "mute":
            return {"error": {"code": -32601, "message": "no such method"}}
        if status == "other":
            return {"result": self._state("another", "working")}
        if status == "input_required" and task.get("answers"):
            status = "completed"
        return {"result": self._state(task_id, status) | self._extras(task, status)}

    def _news(self, task_id: str, task: dict, send: Callable) -> None:
        method = "notifications/tasks" if self.modern else "notifications/tasks/status"
        if task["script"] == "moves" and not self.modern:
            value = {"progressToken": task["token"], "progress": task["at"], "total": 3}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": value})
        if task["script"] == "spams":
            for _ in range(50):
                send({"jsonrpc": "2.0", "method": method, "params": self._state(task_id, "working")})

    def _extras(self, task: dict, status: str) -> dict[str, Any]:
        if not self.modern:
            return {}
        if status == "working" and task["script"] == "moves":
            return {"resultType": "task"}
        if status == "completed":
            return {"result": self._result(task)}
        if status == "failed":
            return {"error": {"code": -32050, "message": "it broke", "data": {"why": "test"}}}
        if status == "input_required":
            count = 100 if task["script"] == "asks_much" else 1
            return {"inputRequests": {f"q{n}": {"method": "elicitation/create", "params": ASK} for n in range(count)}}
        return {}

    def _result(self, task: dict) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": json.dumps(task.get("answers", "done"))}]}

    def _tasks_result(self, params: dict, identity: Any, send: Callable) -> dict[str, Any] | None:
        task = self.tasks[params["taskId"]]
        if task["script"] == "asks" and "answers" not in task:
            related = {"io.modelcontextprotocol/related-task": {"taskId": params["taskId"]}}
            self.waiting["ask-1"] = (task, identity)
            asked = {"method": "elicitation/create", "params": {**ASK, "_meta": related}}
            send({"jsonrpc": "2.0", "id": "ask-1", **asked})
            return None
        if task["script"] == "fails":
            return {"error": {"code": -32050, "message": "it broke", "data": {"why": "test"}}}
        return {"result": self._result(task)}

    def _answered(self, message: dict[str, Any], send: Callable) -> None:
        task, identity = self.waiting.pop(message["id"])
        task["answers"] = message.get("result") or message.get("error")
        send({"jsonrpc": "2.0", "id": identity, "result": self._result(task)})

    def _tasks_update(self, params: dict, *_: Any) -> dict[str, Any]:
        self.tasks[params["taskId"]].setdefault("answers", {}).update(params["inputResponses"])
        return {"result": {}}

    def _tasks_cancel(self, params: dict, *_: Any) -> dict[str, Any]:
        return {"result": {} if self.modern else self._state(params["taskId"], "cancelled")}

    def _tasks_list(self, params: dict, *_: Any) -> dict[str, Any]:
        names = sorted(self.tasks)
        page = names[1:] if params.get("cursor") == "more" else names[:1]
        entries = [self._state(name, "working") for name in page] + [{"taskId": "odd", "status": "meditating"}]
        return {"result": {"tasks": entries} | ({} if "cursor" in params else {"nextCursor": "more"})}


def over_http(server: TaskServer) -> Callable:
    """A script for scripted_http. Each POST is answered by a stream that ends with the response to it. `server.cut`
    holds methods whose next response is cut off. Each entry of `server.unavailable` gives one request of that method
    a 503."""
    streams: dict[Any, asyncio.Queue[dict[str, Any]]] = {}
    cut, unavailable = server.__dict__.setdefault("cut", []), server.__dict__.setdefault("unavailable", [])

    async def script(asked: Any, line: Any) -> None:
        if asked.verb != "POST":
            return await line.reply(405, kind="")
        if asked.method in unavailable:
            unavailable.remove(asked.method)
            return await line.reply(503, kind="")
        if _is_slow(asked.message):
            await asyncio.sleep(SLOW)
        queue = streams.setdefault(asked.id, asyncio.Queue())
        server.handle(
            asked.message, lambda sent: streams[sent["id"] if "method" not in sent else asked.id].put_nowait(sent)
        )
        if asked.id is None or asked.method == "":
            return await line.reply(202, kind="")
        await line.stream()
        if asked.method in cut:
            cut.remove(asked.method)
            return await line.end()
        while True:
            sent = await queue.get()
            await line.event(sent)
            if "method" not in sent:
                return await line.end()

    return script


def _is_slow(message: dict[str, Any]) -> bool:
    return message.get("method") == "tools/call" and message["params"]["name"] == "slow"


def main() -> None:
    server = TaskServer(sys.argv[1], poll=int(sys.argv[2]) if len(sys.argv) > 2 else 100)

    def send(message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    for text in sys.stdin:
        message = json.loads(text)
        if _is_slow(message):
            time.sleep(SLOW)
        server.handle(message, send)
        if message.get("method") == "tasks/get" and "tells" in {task["script"] for task in server.tasks.values()}:
            tell_the_end(server, send)


def tell_the_end(server: TaskServer, send: Callable[[dict[str, Any]], None]) -> None:
    """Complete the task right after a poll, so that only the notification can report it in time."""
    for task_id, task in server.tasks.items():
        task["script"] = "quick"
        task["at"] = 1
        method = "notifications/tasks" if server.modern else "notifications/tasks/status"
        send({"jsonrpc": "2.0", "method": method, "params": server._state(task_id, "completed")})


if __name__ == "__main__":
    main()
