"""The product, with a few addresses whose answers break off: for Daphne."""

from typing import Any

from mcpadmin.asgi import application as product

LENGTH = 1_000


async def _short(send: Any) -> None:
    """As if a file became shorter while it was sent."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(LENGTH).encode())]})
    await send({"type": "http.response.body", "body": b"short"})


async def _broken(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"some", "more_body": True})
    raise OSError("the file cannot be read any more")


async def _failing(send: Any) -> None:
    raise OSError("the file cannot be opened")


ANSWERS = {"/short/": _short, "/broken/": _broken, "/failing/": _failing}


async def application(scope: Any, receive: Any, send: Any) -> None:
    answer = ANSWERS.get(scope.get("path", ""))
    await (product(scope, receive, send) if answer is None else answer(send))
