"""Waits for a condition that client events make true."""

import asyncio
from collections.abc import Callable

#: far more than a healthy machine needs
PATIENCE = 30.0


async def until(true: Callable[[], object]) -> None:
    """Yield to the event loop until the condition is true."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - the condition has no event: usually a list of the test grows
            await asyncio.sleep(0.005)
