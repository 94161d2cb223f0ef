"""Waiting for what a client is told, without a clock of one's own."""

import asyncio
from collections.abc import Callable

#: far beyond what a healthy machine needs
PATIENCE = 30.0


async def until(true: Callable[[], object]) -> None:
    """Give way to the loop until it is so."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110  what is awaited has no event of its own: a list of the test's grows
            await asyncio.sleep(0.005)
