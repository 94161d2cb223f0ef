"""The product, with large answers, and with smaller bounds for those who read them slowly: for Daphne."""

from functools import partial
from typing import Any

from mcpadmin.asgi import application as product
from mcpadmin.web import connections, protocol
from servers.agents.addresses import PREFIX
from tests.mcpadmin.web.sizes import DOWNLOAD, LARGE, MOST_HELD, STREAM, TAKEN_PER_SECOND

PIECE = b"x" * (64 * 1024)

protocol.TAKEN_PER_SECOND, protocol.TAKING_SECONDS = TAKEN_PER_SECOND, 1.0
protocol.Channel.abortTimeout = 2
connections.MOST_HELD_BYTES = MOST_HELD
_pieces = 0


async def _begin(send: Any, size: int) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(size).encode())]})


async def _large(send: Any) -> None:
    await _begin(send, LARGE)
    await send({"type": "http.response.body", "body": b"x" * LARGE})


async def _download(send: Any, size: int = DOWNLOAD) -> None:
    global _pieces
    await _begin(send, size)
    for number in range(size // len(PIECE)):
        _pieces = number + 1
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _made(send: Any) -> None:
    """How many bytes of the newest download were made."""
    made = str(_pieces * len(PIECE)).encode()
    await _begin(send, len(made))
    await send({"type": "http.response.body", "body": made})


ANSWERS = {
    "/large/": _large,
    "/download/": _download,
    "/made/": _made,
    f"{PREFIX}files": partial(_download, size=STREAM),
}


async def application(scope: Any, receive: Any, send: Any) -> None:
    answer = ANSWERS.get(scope.get("path", ""))
    await (product(scope, receive, send) if answer is None else answer(send))
