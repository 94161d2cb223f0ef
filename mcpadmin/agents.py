"""The endpoint for agents next to Django: which requests go there, and what they must satisfy first.

An agent sends no Origin; a browser always does, so a page of another site is refused (DNS rebinding, 2025-11-25
*Transports / Security warning*).
"""

from mcpadmin import origin
from mcpadmin.origin import Application, Receive, Scope, Send
from servers.agents.addresses import PREFIX


class WithAgents:
    """`agents` gets what is below PREFIX, with `client_ip` and `backlog` in its scope. Everything else goes to
    `others`."""

    def __init__(self, agents: Application, others: Application) -> None:
        self.agents, self.others = agents, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            return await self.others(scope, receive, send)
        if not origin.serves_host(scope):
            return await _refuse(send, 400, b"Unknown host.\n")
        if not origin.is_own_or_absent(scope):
            return await _refuse(send, 403, b"Requests of web pages are refused here.\n")
        more = {"client_ip": origin.client_ip(scope), "backlog": origin.backlog_of(send)}
        await self.agents({**scope, **more}, receive, send)


async def _refuse(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
