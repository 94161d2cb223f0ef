"""The smallest WebSocket server for MCP (legacy era); prints its URL on stderr when ready.

python echo_websocket.py
"""

import asyncio
import sys

from echo import answer
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        assert isinstance(message, str)
        if reply := answer(message.encode(), "legacy"):
            await connection.send(reply, text=True)


async def main() -> None:
    async with serve(echo, "127.0.0.1", 0, subprotocols=[Subprotocol("mcp")], compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        print(f"ws://127.0.0.1:{port}/mcp", file=sys.stderr, flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
