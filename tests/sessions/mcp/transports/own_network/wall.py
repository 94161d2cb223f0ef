"""Listens on every address and records who connects. A test's own peer that listens on one address takes its
connections from the wall."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

#: where the tests' servers are; every other address counts as internal
PUBLIC = "93.184.215.14"
PORTS = (80, 443, 3128, 8080)


class Wall:
    def __init__(self) -> None:
        self._arrived: dict[int, asyncio.Queue[tuple[str, int]]] = {port: asyncio.Queue() for port in PORTS}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = writer.get_extra_info("sockname")[:2]
        who = writer.get_extra_info("peername")[1]
        self._arrived[port].put_nowait((address.removeprefix("::ffff:"), who))
        writer.close()

    async def reached(self) -> set[str]:
        """`address port` of all connections so far. They are accepted in order, so our own is the last."""
        return {f"{address} {port}" for port in PORTS for address in await self._until_ours(port)}

    async def _until_ours(self, port: int) -> list[str]:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        ours, found = writer.get_extra_info("sockname")[1], []
        async with asyncio.timeout(30):
            while True:
                address, who = await self._arrived[port].get()
                if (address, who) == ("127.0.0.1", ours):  # another destination may be reached from the same port
                    break
                found.append(address)
        writer.close()
        return found


@asynccontextmanager
async def standing_wall() -> AsyncIterator[Wall]:
    wall = Wall()
    servers = []
    for port in PORTS:
        bound = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, reuse_port=True)
        servers.append(await asyncio.start_server(wall.serve, sock=bound))
    try:
        yield wall
    finally:
        for server in servers:
            server.close()
