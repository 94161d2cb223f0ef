"""Structured logs: JSON lines (words on a terminal), each with the request's or task's id, without secrets.

structlog and the standard library's loggers end in one formatter. Redaction runs before anything can copy a value, once
more on tracebacks when they are rendered, and on the finished line.
"""

import logging
import logging.config
import re
import sys
from collections.abc import Mapping
from typing import Any

import kombu.exceptions
import redis.exceptions
import structlog
from django.conf import settings
from structlog.typing import EventDict, Processor

from mcpadmin.log_redaction import MASK, is_secret_name, redact
from sessions.hints import outage

MAX_TEXT = 16_384
_MAX_DEPTH = 6
# C0, DEL, C1, and characters that change the direction of text: none may reach a terminal or forge a line.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_CONTROL_BUT_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
#: loggers whose reports of a lost Redis are reduced to one line
_OF_REDIS = (
    "channels_redis",
    "celery.worker.consumer",
    "celery.worker.request",  # an acknowledgement that got lost; the task is delivered again and finds its job done
    "celery.beat",
    "kombu",
    "redis",
    "sessions.hints",
)
_REDIS_ERRORS = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, kombu.exceptions.OperationalError)
#: Celery's messages without an exception
_CONNECTED = ("Connected to ", "Skipping prefetch count reduction")
_RECONNECTING = (
    "consumer: Cannot connect to",
    "consumer: Connection to broker lost",
    "beat: Connection error",
    "Connection to broker lost",
)
#: libraries that log the full URL of each request, or one line per beat, at INFO
_QUIET = (
    "httpx",
    "httpcore",
    "daphne",
    "asyncio",
    "aiohttp",
    "celery.beat",
    "celery.utils.functional",
    "kombu",
    "oauthlib",
)


def redact_event(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Every value of the event, nested ones included; a value under a name that suggests a secret is masked whole."""
    return {name: MASK if is_secret_name(name) else _clean(value, 0) for name, value in event.items()}


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return redact(value[:MAX_TEXT])
    if isinstance(value, bytes):
        return redact(value[:MAX_TEXT].decode(errors="backslashreplace"))
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(key): MASK if is_secret_name(str(key)) else _clean(item, depth + 1) for key, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        return [_clean(item, depth + 1) for item in value]
    return value


def redact_rendered(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Redact what was still an object, or missing, when `redact_event` saw the event."""
    for name in ("exception", "stack"):
        if name in event:
            event[name] = _clean(event[name], 0)
    return event


def escape_controls(_logger: object, _method: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if isinstance(value, str):
            pattern = _CONTROL_BUT_LINES if name in ("exception", "stack") else _CONTROL
            event[name] = pattern.sub(_escape, value)
    return event


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class TracebackFilter(logging.Filter):
    """Drops tracebacks that add nothing: for a refused request, and while Redis is down, which libraries report at each
    attempt of each part (see sessions.hints.outage for the one line about it)."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("django.") and getattr(record, "status_code", 500) < 500:
            record.exc_info = record.exc_text = None
            return True
        if record.name.startswith("celery.worker.consumer") and record.getMessage().startswith(_CONNECTED):
            return False  # said at each start and after each outage
        problem = _redis_problem(record.exc_info[1] if record.exc_info else None)
        if problem is None and not record.getMessage().startswith(_RECONNECTING):
            return True
        if not record.name.startswith(_OF_REDIS) and problem is None:
            return True
        outage.noticed(problem or "ConnectionError")
        if record.name.startswith(_OF_REDIS):
            return False
        record.exc_info = record.exc_text = None
        return True


def _redis_problem(problem: BaseException | None) -> BaseException | None:
    """The Redis error that is, or led to, `problem`."""
    seen: set[int] = set()
    while problem is not None and id(problem) not in seen:
        if isinstance(problem, _REDIS_ERRORS):
            return problem
        seen.add(id(problem))
        problem = problem.__cause__ or problem.__context__
    return None


class SafeFormatter(structlog.stdlib.ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    redact_event,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
]


def _rendering(form: str) -> list[Processor]:
    prepare: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        redact_rendered,
        escape_controls,
    ]
    if form == "json" or (form == "auto" and not sys.stderr.isatty()):
        return [
            *prepare,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(default=_plainly),
        ]
    return [
        *prepare,
        structlog.dev.ConsoleRenderer(colors=form == "auto", exception_formatter=structlog.dev.plain_traceback),
    ]


def _plainly(value: object) -> str:
    """A value that JSON does not support, as redacted text: a repr may contain what the value contains."""
    return redact(str(value))


def configure(_config: Mapping[str, Any] | None = None) -> None:
    """Also the LOGGING_CONFIG of the settings. Calling it again changes nothing."""
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "safe": {
                    "()": SafeFormatter,
                    "processors": _rendering(settings.LOG_FORMAT),
                    "foreign_pre_chain": _SHARED,
                }
            },
            "filters": {"calm": {"()": TracebackFilter}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "safe", "filters": ["calm"]}},
            "root": {"handlers": ["stderr"], "level": settings.LOG_LEVEL},
            "loggers": {
                "django": {"handlers": [], "level": "INFO", "propagate": True},
                "django.server": {"handlers": [], "propagate": True},
                **{name: {"level": "WARNING"} for name in _QUIET},
            },
        }
    )
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
