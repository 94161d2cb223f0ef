"""Celery's side of the logs: the request id travels with a task, and each line of a task names both."""

from typing import Any

import structlog
from celery import signals

from mcpadmin import logging

HEADER = "mcpadmin_request_id"


def connect() -> None:
    signals.setup_logging.connect(_configure_logging)
    signals.before_task_publish.connect(_send_request_id)
    signals.task_prerun.connect(_bind)
    signals.task_postrun.connect(_unbind)


def _configure_logging(**_signal: object) -> None:
    """A receiver of this signal keeps Celery from installing handlers of its own."""
    logging.configure()


def _send_request_id(headers: dict[str, Any] | None = None, **_signal: object) -> None:
    request_id = structlog.contextvars.get_contextvars().get("request_id")
    if headers is not None and request_id:
        headers[HEADER] = request_id


def _bind(task_id: str = "", task: Any = None, **_signal: object) -> None:
    structlog.contextvars.clear_contextvars()
    request_id = getattr(task.request, HEADER, None) or (task.request.headers or {}).get(HEADER)
    structlog.contextvars.bind_contextvars(
        task=task.name, task_id=task_id, **({"request_id": request_id} if request_id else {})
    )


def _unbind(**_signal: object) -> None:
    """Pool threads live on: nothing of this task may show up in the next one's lines."""
    structlog.contextvars.clear_contextvars()
