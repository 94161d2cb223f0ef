"""Puts the official Python SDK's client under load. Runs in the environment of the peer sdk2.

python drive_sdk.py stdio|http legacy|modern COMMAND... | URL
"""

import asyncio
import sys

from load import TEXT, obey
from mcp import Client, StdioServerParameters


async def main(transport: str, era: str, *where: str) -> None:
    server = where[0] if transport == "http" else StdioServerParameters(command=where[0], args=list(where[1:]))
    async with Client(server, mode="legacy" if era == "legacy" else "auto") as client:

        async def call() -> None:
            result = await client.call_tool("echo", {"text": TEXT})
            assert result.content[0].text == TEXT

        await obey(call)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
