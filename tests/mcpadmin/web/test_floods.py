"""A page that sends faster than its messages are handled is closed, and does not delay other pages."""

import asyncio
import time

import httpx

from tests.sessions.live.site import Site

#: a masked frame of text, with a mask of zeros
PING = bytes([0x81, 0x80 | 13]) + bytes(4) + b'{"op":"ping"}'


async def test_a_flood_of_messages_is_closed_while_it_lasts_and_others_are_answered(site: Site) -> None:
    async with site.browser("ada").tab() as tab, httpx.AsyncClient(timeout=20) as other:
        closing, began, waited = asyncio.create_task(tab.closed(10)), time.monotonic(), []

        async def flood() -> None:
            while not closing.done():
                tab.connection.transport.write(PING * 1_000)
                await asyncio.sleep(0 if tab.connection.transport.get_write_buffer_size() < 100_000 else 0.001)

        flooding = asyncio.create_task(flood())
        while not closing.done():
            asked = time.monotonic()
            assert (await other.get(f"{site.origin}/healthz")).status_code == 200
            waited.append(time.monotonic() - asked)
        await closing
        await flooding
    assert time.monotonic() - began < 5
    assert max(waited) < 1
