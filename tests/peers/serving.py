"""Serves a peer as `stdio`, `http --port N` or `all --port N` (every HTTP face), the same for each SDK."""

import argparse
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn


class AnnouncingServer(uvicorn.Server):
    """Prints its URL on stderr once it accepts connections, so that tests need not poll."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(f"http://{host}:{port}/mcp", file=sys.stderr, flush=True)


def serve(run_stdio: Callable[[], None], http_app: Callable[[], Any], all_faces: Callable[[], Any]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=["stdio", "http", "all"])
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.transport == "stdio":
        run_stdio()
        return
    app = all_faces() if arguments.transport == "all" else http_app()
    config = uvicorn.Config(
        app, host="127.0.0.1", port=arguments.port, log_level="warning", timeout_graceful_shutdown=1
    )
    AnnouncingServer(config).run()
