"""An MCP client for one server: joins the protocol machine to a transport in one event loop.

The machine (sessions/mcp/core) decides and the transport moves bytes. Everything that waits is here: requests in
flight with their deadlines, the attempts of a call, the server's requests, the watchdog for a silent peer.
"""

from ..core.input_requests import InputRequest, Refused, Root
from ..core.tasks import TaskOptions, TaskState
from .answerers import Answer
from .client import Client
from .pump import OnProgress
from .round_trips import BeforeSend

__all__ = [
    "Answer",
    "BeforeSend",
    "Client",
    "InputRequest",
    "OnProgress",
    "Refused",
    "Root",
    "TaskOptions",
    "TaskState",
]
