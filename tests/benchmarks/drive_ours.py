"""Puts our client under load.

python -m tests.benchmarks.drive_ours stdio|http legacy|modern COMMAND... | URL
"""

import asyncio
import sys

from sessions.mcp.transports.registry import Spec, StdioSpec
from sessions.mcp.transports.stdio import prepare_loop
from tests.benchmarks.load import TEXT, obey
from tests.sessions.mcp.transports.making import connected, http


def spec_of(transport: str, where: tuple[str, ...]) -> Spec:
    return http(where[0]) if transport == "http" else StdioSpec(where[0], where[1:])


async def main(transport: str, era: str, *where: str) -> None:
    prepare_loop(asyncio.get_running_loop())
    async with connected(spec_of(transport, where), era="legacy" if era == "legacy" else "auto") as made:

        async def call() -> None:
            result = await made.client.call_tool("echo", {"text": TEXT})
            assert result.content[0]["text"] == TEXT

        await obey(call)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
