"""Sets how much a server writes to the log of the session.

Source: 2025-11-25 *Server / Utilities / Logging*; 2026-07-28 *Logging* (a level in the `_meta` of each request).
"""

import asyncio
import logging

from ..core import methods
from ..core.errors import InvalidRequest, McpError
from ..core.versions import Era
from .requesting import Requesting

log = logging.getLogger(__name__)


class LogLevel(Requesting):
    #: what was asked for last
    _log_level: str | None = None
    _setting: "asyncio.Task[None] | None" = None

    async def set_log_level(self, level: str | None) -> None:
        """The lowest severity that the server should send, one of methods.LOG_LEVELS. None: no messages (modern), or
        the server's own choice (legacy, where a level cannot be withdrawn). InvalidRequest (not_offered) when the
        server has no log."""
        if level is not None and level not in methods.LOG_LEVELS:
            raise InvalidRequest(f"A level is one of {', '.join(methods.LOG_LEVELS)}.")
        await self._demand_offered("logging")
        await self._ask_level(level)
        self._log_level = level

    async def _ask_level(self, level: str | None) -> None:
        if self._session.era is Era.MODERN:
            self._session.log_level = level
        elif level is not None:
            await self._request(methods.SET_LEVEL, {"level": level}, self._timeouts.request)

    def _renewed(self) -> None:
        super()._renewed()
        if self._log_level is not None:
            self._setting = asyncio.create_task(self._set_again(self._log_level), name="mcp log level")

    async def _set_again(self, level: str) -> None:
        try:
            await self._ask_level(level)
        except McpError as exc:
            log.warning("the log level was not set again after the session was renewed: %s", exc)

    def _over(self) -> None:
        super()._over()
        if self._setting is not None:
            self._setting.cancel()
