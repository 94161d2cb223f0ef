"""Whether this process runs a management command. Without Django: it is set before the models are loaded."""

from contextvars import ContextVar

at_command_line: ContextVar[bool] = ContextVar("at_command_line", default=False)
