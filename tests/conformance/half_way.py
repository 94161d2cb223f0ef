"""A driver that does what the suite checks and then crashes: the suite passes it, our check must not."""

import asyncio
import os
import sys

from tests.conformance.client import connected


async def main(url: str) -> None:
    async with connected(url) as client:
        await client.list_tools()
        await client.call_tool("add_numbers", {"a": 5, "b": 3})
        os._exit(7)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
