"""Sets how much a server writes to the log of the session.

Source: 2025-11-25 *Server / Utilities / Logging*; 2026-07-28 *Logging* (a level in the `_meta` of each request).
"""

import asyncio
import logging

from ..core import methods
from ..core.errors import InvalidRequest, McpError
from ..core.versions import Era
from .requester import Requester

#: the assumed level of a server whose level was never set: it must not send less because an agent wants little
DEFAULT = "info"
log = logging.getLogger(__name__)


class LogLevel:
    def __init__(self, requester: Requester) -> None:
        self._requester, self._session = requester, requester.session
        #: the level that was requested last
        self._level: str | None = None
        self._setting: asyncio.Task[None] | None = None
        requester.on_renewed.append(self._renewed)

    async def set(self, level: str | None) -> None:
        if level is not None and level not in methods.LOG_LEVELS:
            raise InvalidRequest(f"The level must be one of {', '.join(methods.LOG_LEVELS)}.")
        await self._requester.demand_offered("logging")
        await self._ask_level(level)
        self._level = level

    async def raise_to(self, level: str | None) -> None:
        """An agent wants lines of its call from this level on. A session of a legacy server has one level, so the most
        verbose one that anyone asked for stays in force. If the server offers no logging, nothing happens."""
        if level is None:
            return
        least = min(level, self._level or DEFAULT, key=methods.LOG_LEVELS.index)
        if least == self._level:
            return
        try:
            await self.set(least)
        except McpError as exc:
            log.debug("the log level was not raised: %s", exc)

    async def _ask_level(self, level: str | None) -> None:
        if self._session.era is Era.MODERN:
            self._session.log_level = level
        elif level is not None:
            await self._requester.request(methods.SET_LEVEL, {"level": level}, self._requester.timeouts.request)

    def _renewed(self) -> None:
        if self._level is not None:
            self._setting = asyncio.create_task(self._set_again(self._level), name="mcp log level")

    async def _set_again(self, level: str) -> None:
        try:
            await self._ask_level(level)
        except McpError as exc:
            log.warning("the log level was not set again after the session was renewed: %s", exc)

    def stop(self) -> None:
        if self._setting is not None:
            self._setting.cancel()
