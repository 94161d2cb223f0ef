from sessions.models.call import Attempt, Call
from sessions.models.log import LogLine
from sessions.models.session import McpSession
from sessions.models.worker import Worker

__all__ = ["Attempt", "Call", "LogLine", "McpSession", "Worker"]
