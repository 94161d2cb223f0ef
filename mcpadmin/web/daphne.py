"""`python -m mcpadmin.web.daphne`: Daphne's command line with our limits."""

import asyncio
import logging
import os
import selectors
import sys
from typing import Any

from daphne import server as daphne_server  # first: it chooses Twisted's reactor
from daphne.cli import CommandLineInterface
from twisted.internet.defer import Deferred

from mcpadmin.web.connections import Connections
from mcpadmin.web.protocol import Factory, WebSocketFactory, WebSocketProtocol
from servers import limits, open_files

logger = logging.getLogger(__name__)

#: kept free for the database, Redis, static files and child processes
RESERVED = 256
#: what remains of the time for requests of agents, to end this process in an orderly way
ENDING_SECONDS = 0.5
#: WebSocket close code *going away* (RFC 6455, section 7.4.1)
GOING_AWAY = 1001


def require_scalable_loop(loop: Any) -> None:
    """select() cannot watch a descriptor above 1,023, so one connection too many would end the process."""
    if isinstance(getattr(loop, "_selector", None), selectors.SelectSelector):
        raise SystemExit("mcpadmin needs epoll, kqueue or poll; this Python offers only select().")


def connections(descriptors: int, *, behind_proxy: bool) -> Connections:
    room = max(16, descriptors - RESERVED)
    most = min(limits.number("connections"), room)
    if most < limits.number("connections"):
        logger.warning("only %d connections: this process may open %d files (ulimit -n)", most, descriptors)
    # One address must not take all the room, however little there is.
    return Connections(most, 0 if behind_proxy else min(limits.number("connections_per_address"), most * 3 // 4 or 1))


class Server(daphne_server.Server):
    connections: dict[Any, dict[str, Any]]

    def run(self) -> None:
        from django.conf import settings  # noqa: PLC0415  # the application is loaded by now

        require_scalable_loop(daphne_server.twisted_loop)
        Factory.open_connections = connections(open_files.raise_limit(), behind_proxy=settings.TRUSTED_PROXIES > 0)
        Factory.seconds = settings.REQUEST_SECONDS
        super().run()

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """A download is produced no faster than its client reads it."""
        await super().handle_reply(protocol, message)
        if message.get("more_body"):
            await protocol.taken()

    def kill_all_applications(self) -> Any:
        """Accept nothing and close live pages, then let the requests of agents finish: the workers, which stop at the
        same time, finish their calls."""
        from django.conf import settings  # noqa: PLC0415  # the application is loaded by now

        from sessions.agents.asgi import drain  # noqa: PLC0415  # as above

        for listener in self.listeners:
            listener.addCallback(lambda port: port.stopListening())
        for protocol in list(self.connections):
            if isinstance(protocol, WebSocketProtocol) and protocol.state == protocol.STATE_OPEN:
                protocol.serverClose(GOING_AWAY)
        draining = Deferred.fromFuture(asyncio.ensure_future(drain(settings.DRAIN_SECONDS - ENDING_SECONDS)))
        return draining.addBoth(lambda _: self._kill())

    def _kill(self) -> Any:
        """Kill only applications that run: a request that was still arriving has none."""
        self.connections = {one: known for one, known in self.connections.items() if "application_instance" in known}
        return super().kill_all_applications()


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcpadmin.settings")
    # Daphne takes its factories by these names and offers no other way to choose them.
    daphne_server.HTTPFactory, daphne_server.WebSocketFactory = Factory, WebSocketFactory
    asyncio.set_event_loop(daphne_server.twisted_loop)
    interface = CommandLineInterface()
    interface.server_class = Server
    interface.run(sys.argv[1:])


if __name__ == "__main__":
    main()
