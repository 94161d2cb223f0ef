"""Records what tools a real stdio server offers, for the corpus of schemas: names and input schemas, no prose.

    python -m tests.servers.schemas.record npm:@playwright/mcp@0.0.83 playwright.json -- npx -y @playwright/mcp

Standard library only. The server is started with the environment of the caller.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

SECONDS = 60
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"roots": {}, "sampling": {}, "elicitation": {}},
    "clientInfo": {"name": "schema-recorder", "version": "1"},
}
#: keywords with prose of the server's authors
PROSE = {"description", "$comment", "examples", "markdownDescription"}
#: keywords whose keys are names chosen by the schema's author
NAMED = {
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
}
#: keywords with a value instead of a schema
VALUES = {"default", "const", "enum", "required"}


def without_prose(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_prose(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _part(key, part) for key, part in schema.items() if key not in PROSE}


def _part(key: str, part: Any) -> Any:
    if key in VALUES:
        return part
    if key in NAMED and isinstance(part, dict):
        return {name: without_prose(sub) for name, sub in part.items()}
    return without_prose(part)


class Server:
    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._last = 0
        self._timer = threading.Timer(SECONDS, self._process.kill)
        self._timer.start()

    def close(self) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()

    def send(self, method: str, **more: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **more}) + "\n")
        self._process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        self.send(method, id=self._last, params=params)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("id") == self._last and "method" not in message:
                result: dict[str, Any] = message["result"]
                return result
        raise SystemExit(f"no answer to {method}")


def recorded(command: list[str]) -> list[dict[str, Any]]:
    server = Server(command)
    try:
        server.ask("initialize", HELLO)
        server.send("notifications/initialized")
        tools, cursor = [], None
        while True:
            page = server.ask("tools/list", {} if cursor is None else {"cursor": cursor})
            tools += [
                {"name": tool["name"], "inputSchema": without_prose(tool["inputSchema"])} for tool in page["tools"]
            ]
            cursor = page.get("nextCursor")
            if not cursor:
                return tools
    finally:
        server.close()


def main() -> None:
    package, file, dashes, *command = sys.argv[1:]
    if dashes != "--" or not command:
        raise SystemExit(__doc__)
    tools = recorded(command)
    lines = ",\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    Path(file).write_text(f'{{"package": {json.dumps(package)}, "tools": [\n{lines}\n]}}\n')
    print(f"{package}: {len(tools)} tools")


if __name__ == "__main__":
    main()
