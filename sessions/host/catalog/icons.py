"""Fetches the icons that a server declares for itself and its tools: guarded, bounded, without cookies or
credentials."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from sessions.connections import icons
from sessions.connections.icons import ICON_BYTES, Fetched
from sessions.connections.lifecycle import Lease
from sessions.host.cancelling import cancel_all
from sessions.host.db import Database, DatabaseAway
from sessions.host.fetching import fetch

AT_ONCE: Final = 2
log = structlog.get_logger(__name__)


class Icons:
    def __init__(self, db: Database, lease: Lease) -> None:
        self._db, self._lease = db, lease
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Call when the server may have declared other icons, or the stored ones may be outdated."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(), name="fetch icons")

    async def close(self) -> None:
        await cancel_all(self._task)

    async def _look(self) -> None:
        with suppress(DatabaseAway):  # the next read of the lists tries again
            sources = await self._db.read(partial(icons.due, self._lease))
            if not sources:
                return
            slots = asyncio.Semaphore(AT_ONCE)
            found = await asyncio.gather(*(_one(src, slots) for src in sources))
            await self._db.write(partial(icons.store, self._lease, dict(zip(sources, found, strict=True))))
            log.debug("host.icons_fetched", session=str(self._lease.session_uid), count=len(sources))


async def _one(src: str, slots: asyncio.Semaphore) -> Fetched:
    inline = icons.inline(src)
    if inline is not None:
        return inline
    async with slots:
        return await fetch(src, "image/png, image/jpeg, image/webp, image/gif", ICON_BYTES)
