"""Local servers that fail and print their environment; the argument selects how. Standard library only."""

import json
import os
import sys

how = sys.argv[1]
given = {name: value for name, value in os.environ.items() if name not in ("PATH", "LANG")}
print(f"starting with {given}", file=sys.stderr, flush=True)
if how == "traceback":
    raise RuntimeError(f"cannot start with {json.dumps(given)}")
if how == "garbage":
    print(f"listening, {given}", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if how == "crash":
        sys.exit(f"died of {given}")
    if "id" in message:
        error = {"code": -32603, "message": str(given), "data": given}
        told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": given}}
        print(json.dumps(told), flush=True)
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
