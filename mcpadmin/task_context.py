"""Binds the current Celery task to the logs: each line of a task names it."""

from typing import Any

import structlog
from celery import signals

from mcpadmin import logging


def connect() -> None:
    signals.setup_logging.connect(_configure_logging)
    signals.task_prerun.connect(_bind)
    signals.task_postrun.connect(_unbind)


def _configure_logging(**_signal: object) -> None:
    """A receiver of this signal keeps Celery from installing its own handlers."""
    logging.configure()


def _bind(task_id: str = "", task: Any = None, **_signal: object) -> None:
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(task=task.name, task_id=task_id)


def _unbind(**_signal: object) -> None:
    """Pool threads live on: nothing of this task may show up in the next one's lines."""
    structlog.contextvars.clear_contextvars()
