#!/usr/bin/env python3
"""A container engine as far as `docker pull`, `docker image inspect` and `docker run` go, for machines without one.

The file that the variable ENGINE names is its store: {"registry": {image: digest}, "here": {image@digest: id}, "tags":
{image: image@digest}}. Without "registry" the registry is away. An image is an MCP server that says its digest as its
version. Each run adds its arguments to the file `runs` beside the store.
"""

import json
import os
import sys
from pathlib import Path

STORE = Path(os.environ["ENGINE"])


def fail(words: str) -> None:
    print(f"Error response from daemon: {words}", file=sys.stderr)
    sys.exit(1)


def serve(digest: str) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "i", "version": digest}}
        found = {"initialize": about, "ping": {}}.get(message["method"])
        if "id" in message:
            answer = {"error": {"code": -32601, "message": "unknown"}} if found is None else {"result": found}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


def main() -> None:
    store = json.loads(STORE.read_text())
    verb, *rest = sys.argv[1:]
    if verb == "pull":
        asked = rest[-1]
        if "registry" not in store:
            fail('Get "https://registry.example/v2/": dial tcp: lookup registry.example: no such host')
        name, _, digest = asked.partition("@")
        digest = digest or store["registry"].get(name) or fail(f"pull access denied for {name}")
        store["here"][f"{name}@{digest}"] = f"sha256:id-of-{digest[-4:]}"
        store["tags"][name] = f"{name}@{digest}"
        STORE.write_text(json.dumps(store))
    elif verb == "image":
        found = store["tags"].get(rest[-1], rest[-1])
        if found not in store["here"]:
            fail(f"No such image: {rest[-1]}")
        print(json.dumps([{"Id": store["here"][found], "RepoDigests": [found]}]))
    elif verb == "run":
        with STORE.with_name("runs").open("a") as runs:
            runs.write(" ".join(rest) + "\n")
        serve(next(word.partition("@")[2] for word in rest if "@" in word))


main()
