"""Sends the messages of subscriptions to their webhooks. Connections are guarded like every outbound one, and never
delay a session. A slow receiver does not delay others.

The rows say what is due. The host looks at each tick, and after storing a new version of a resource.
"""

import asyncio
import time
from functools import partial
from typing import Final

import httpx
from django.utils import timezone

from sessions.host.db import Database
from sessions.host.due import DueTasks
from sessions.host.outbound import egress_policy
from sessions.host.sending.http import exchange
from sessions.mcp.core.errors import AddressRefused, McpError
from sessions.mcp.transports.base import translated
from sessions.subscriptions import webhooks
from sessions.subscriptions.webhooks import Attempted, Claimed, Due

AT_ONCE: Final = 8
SECONDS: Final = 10.0
_REDIRECTED: Final = "The webhook answered with a redirect (HTTP {}). Redirects are not followed: enter the final URL."
_ANSWERED: Final = "The webhook answered with HTTP {}."
_GUARDED: Final = "The outbound guard blocks the webhook's address. An operator can allow its network."
_SLOW: Final = f"The webhook did not answer within {SECONDS:g} s."


class Webhooks:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._messages: DueTasks[Due] = DueTasks(
            db,
            "webhooks",
            webhooks.due,
            self._send,
            at_once=AT_ONCE,
            whose=lambda message: message.subscription,
            each=webhooks.TURNS,
        )
        self.look, self.close = self._messages.look, self._messages.close

    async def _send(self, message: Due) -> None:
        claimed = await self._db.write(partial(webhooks.claim, message.pk))
        if claimed is not None:
            outcome = await attempt(claimed)
            await self._db.persist(partial(webhooks.attempted, claimed, outcome), list)


async def attempt(claimed: Claimed) -> Attempted:
    """One POST, from connecting to the status of the response."""
    if claimed.secret is None:
        return Attempted(None, claimed.problem)
    began = time.monotonic()
    try:
        async with asyncio.timeout(SECONDS):
            with translated():
                headers = claimed.headers(claimed.secret, timezone.now())
                request = httpx.Request("POST", claimed.url, headers=headers, content=claimed.body)
            status = (await exchange(request, egress_policy(), with_body=False)).status
    except TimeoutError:
        return Attempted(None, _SLOW)
    except AddressRefused:
        return Attempted(None, _GUARDED)
    except McpError as error:
        return Attempted(None, error.detail)
    took = f" It took {(time.monotonic() - began) * 1000:.0f} ms."
    words = _REDIRECTED if 300 <= status < 400 else _ANSWERED
    return Attempted(status, words.format(status) + took)
