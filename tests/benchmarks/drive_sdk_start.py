"""Opens one stdio server with the official Python SDK's client. Runs in the environment of the peer sdk2.

python drive_sdk_start.py SECONDS COMMAND ...

Prints {"revision": …, "seconds": …} once the session is open, or {"problem": …}.
"""

import asyncio
import json
import os
import sys
import time

from mcp import Client, StdioServerParameters


async def main(seconds: float, command: str, *args: str) -> None:
    server = StdioServerParameters(command=command, args=list(args), env=dict(os.environ))
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            async with Client(server, mode="auto") as client:
                taken = time.monotonic() - began
                print(json.dumps({"revision": client.protocol_version, "seconds": taken}), flush=True)
    except BaseException as problem:  # any exception is a result of this measurement
        taken = time.monotonic() - began
        print(json.dumps({"seconds": taken, "problem": f"{type(problem).__name__}: {problem}"[:200]}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), *sys.argv[2:]))
