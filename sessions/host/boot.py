"""How a Celery worker comes to a session host: a step of the worker (so a lost broker ends no session), and a consumer.

This module is imported before Django is set up, so it imports nothing of ours that needs models.
"""

import json
import resource
from contextlib import suppress
from typing import Any

import structlog
from celery import bootsteps
from kombu import Consumer, Exchange, Queue
from kombu.message import Message

from sessions.host import current

#: a queue that nobody reads for this long vanishes, also when nobody is left to delete it
QUEUE_EXPIRES_SECONDS = 600.0
MESSAGE_BYTES = 4_096
DESCRIPTORS = 65_536
log = structlog.get_logger(__name__)


def more_descriptors() -> None:
    """As many as the system lets us have, within reason: a session takes two to four, and 1,024 is a common default."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, DESCRIPTORS)
    if now != resource.RLIM_INFINITY and now < wanted:
        with suppress(ValueError, OSError):  # some systems have a lower limit of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


class HostStep(bootsteps.StartStopStep):
    """Starts the host before the first message can come, and drains it before the process ends."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        worker.mcp_host = None
        super().__init__(worker, **kwargs)

    def start(self, worker: Any) -> None:
        from sessions.host.loop import HostThread  # noqa: PLC0415  # needs models: Django is set up only now

        more_descriptors()
        worker.mcp_host = HostThread(worker.hostname)
        worker.mcp_host.start()
        current.set_ring(worker.mcp_host.ring)

    def stop(self, worker: Any) -> None:
        self._end(worker, drain=True)

    def terminate(self, worker: Any) -> None:
        self._end(worker, drain=False)

    def _end(self, worker: Any, *, drain: bool) -> None:
        host, worker.mcp_host = worker.mcp_host, None
        current.set_ring(None)
        if host is not None:
            if not host.stop(drain=drain):
                log.warning("host.did_not_end_in_time")
            host.forget()


class CommandStep(bootsteps.ConsumerStep):
    """Reads the queue of this incarnation. Anyone may write into it: a message only names a row to look at."""

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self._host: Any = None
        self.dropped = 0
        super().__init__(consumer, **kwargs)

    def start(self, consumer: Any) -> None:
        self._host = consumer.controller.mcp_host
        super().start(consumer)

    def get_consumers(self, channel: Any) -> list[Consumer]:
        name = f"host.{self._host.uid}"
        queue = Queue(name, Exchange(""), routing_key=name, durable=False, expires=QUEUE_EXPIRES_SECONDS)
        return [Consumer(channel, queues=[queue], on_message=self._on_message, no_ack=True, accept=["json"])]

    def _on_message(self, message: Message) -> None:
        """Never raises: a message that no one can read must not end the consumer."""
        try:
            body = _decoded(message)
        except (ValueError, TypeError, LookupError, RecursionError):
            self.dropped += 1
            return
        self._host.ring(body)


def _decoded(message: Message) -> Any:
    """Our messages are JSON of a hundred bytes, whatever their headers say."""
    raw = message.body
    if len(raw) > MESSAGE_BYTES:
        raise ValueError("too long for a message of ours")
    return json.loads(raw)
