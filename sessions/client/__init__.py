"""An MCP client for one server: joins the protocol machine to a transport in one event loop.

The machine (sessions/protocol) decides, the transport moves bytes; here is what waits: requests in flight with
their deadlines, the attempts of a call, the questions of the server, the watch over a silent peer.
"""

from ..protocol.asked import Asked, Refused, Root
from ..protocol.tasks import TaskState, TaskWish
from .answers import Answer
from .client import Client
from .pump import OnProgress
from .rounds import BeforeSend

__all__ = ["Answer", "Asked", "BeforeSend", "Client", "OnProgress", "Refused", "Root", "TaskState", "TaskWish"]
