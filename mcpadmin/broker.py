"""Celery's transport: kombu's for Redis, for a Redis that is not trusted.

Any process that can write to the queue can put anything there. Kombu and Celery end the worker on bytes that are not
JSON, on a message that lacks a field or on a key of another type, and act on headers (times, callbacks, other queues,
compression) that we never send. Here four values are read from a message, and Celery gets a message made from them.
A message without them is dropped, and a key of another type is removed.

Nor does an error reply to a command end the worker, whose sessions need no broker: a Redis that fails over, or whose
disk is full, counts as unavailable, and Celery reconnects.

Nothing about queues and bindings is read from Redis: there is one queue. Acknowledgements are not kept there: a message
is a hint, and lost ones are published again (servers/jobs/requesting.py).
"""

import base64
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import structlog
from celery import current_app
from kombu.transport import TRANSPORT_ALIASES, redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, ResponseError

ALIAS = "mcpadmin"
MAX_MESSAGE_BYTES = 16_384
MAX_ARGUMENTS = 4
MAX_ARGUMENT_LENGTH = 200
#: at most one log line of a kind per this time
LOG_SECONDS = 10.0
#: between two attempts while Redis accepts connections but refuses requests for messages
REFUSED_SECONDS = 1.0
log = structlog.get_logger(__name__)


def register() -> None:
    """Make ALIAS a transport that settings can name; an address of kombu cannot hold the path of a class."""
    TRANSPORT_ALIASES[ALIAS] = "mcpadmin.broker:Transport"


def accepted(raw: bytes) -> bytes | None:
    """The message that Celery gets for `raw`; None if it is not one of ours."""
    try:
        if len(raw) > MAX_MESSAGE_BYTES:
            return None
        message = json.loads(raw)
        headers = message["headers"]
        task, task_id, expires = headers["task"], headers["id"], headers.get("expires")
        arguments = json.loads(base64.b64decode(message["body"], validate=True))[0]
        if task not in current_app.tasks or task.startswith("celery."):
            return None
        if not isinstance(arguments, list) or len(arguments) > MAX_ARGUMENTS:
            return None
        if not all(isinstance(one, str) and len(one) <= MAX_ARGUMENT_LENGTH for one in arguments):
            return None
        return _written(task, str(uuid.UUID(task_id)), arguments, expires and datetime.fromisoformat(expires))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None


def _written(task: str, task_id: str, arguments: list[str], expires: datetime | None) -> bytes:
    message = current_app.amqp.as_task_v2(task_id, task, arguments, {}, expires=expires, ignore_result=True, origin="")
    properties = message.properties | {
        "body_encoding": "base64",
        "delivery_info": {"exchange": "", "routing_key": current_app.conf.task_default_queue},
        "delivery_mode": 2,
        "delivery_tag": str(uuid.uuid4()),
        "priority": 0,
    }
    envelope = {
        "body": base64.b64encode(json.dumps(message.body).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": message.headers,
        "properties": properties,
    }
    return json.dumps(envelope).encode()


class Counted:
    """Counts what happens, so that a flood of it does not become a flood of log lines."""

    def __init__(self, event: str, noun: str) -> None:
        self._event, self._noun = event, noun
        self._count, self._said = 0, -LOG_SECONDS

    def one(self, **more: str) -> None:
        self._count += 1
        if time.monotonic() - self._said >= LOG_SECONDS:
            log.warning(self._event, **{self._noun: self._count}, **more)
            self._count, self._said = 0, time.monotonic()


_dropped, _refused = Counted("broker.dropped", "messages"), Counted("broker.refused", "attempts")


@contextmanager
def _refusal_is_outage() -> Iterator[None]:
    """Celery reconnects after a lost connection, but ends after an error reply. A missing permission is passed on
    unchanged: only an operator can grant it."""
    try:
        yield
    except NoPermissionError:
        raise
    except ResponseError as problem:
        _refused.one(problem=str(problem)[:200])  # a Redis that answers PING is not logged as an outage
        raise RedisConnectionError(f"Redis refused a command: {problem}") from problem


class QueueClient(redis.PrefixedStrictRedis):
    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        if command_name != "BRPOP":
            return super().parse_response(connection, command_name, **options)
        try:
            found = super().parse_response(connection, command_name, **options)
        except ResponseError as problem:
            if "WRONGTYPE" not in str(problem):
                time.sleep(REFUSED_SECONDS)
                with _refusal_is_outage():
                    raise
            log.warning("broker.queue_was_no_list")
            self.delete(current_app.conf.task_default_queue)
            return None
        if not found:
            return found
        queue, raw = found
        if (message := accepted(raw)) is None:
            _dropped.one()
            return None
        return queue, message


class QueueChannel(redis.Channel):
    ack_emulation = False
    priority_steps = [0]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with _refusal_is_outage():  # for PING, which a Redis that cannot save its data refuses too
            super().__init__(*args, **kwargs)

    def _get_client(self) -> Any:
        super()._get_client()  # refuses a version of redis-py that it does not know
        return partial(QueueClient, global_keyprefix=self.global_keyprefix)

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        try:
            super()._put(queue, message, **kwargs)
        except ResponseError as problem:
            if "WRONGTYPE" not in str(problem):
                raise
            with self.conn_or_acquire() as client:
                client.delete(queue)
            super()._put(queue, message, **kwargs)

    def _brpop_start(self, timeout: float | None = None) -> None:
        with _refusal_is_outage():  # for PING, which is sent first after a long pause
            super()._brpop_start(timeout)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        """The binding is known: see `get_table`."""

    def _size(self, queue: str) -> int:
        """Requested with each declaration, and never used."""
        return 0

    def get_table(self, exchange: str) -> list[tuple[str, str, str]]:
        queue = current_app.conf.task_default_queue
        return [(queue, "", queue)]


class Transport(redis.Transport):
    Channel = QueueChannel
