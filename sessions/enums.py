"""The enumerations of this app. Values are stored and appear in exports, so never rename one."""

from django.db.models import TextChoices


class SessionState(TextChoices):
    """The five states of the protocol core, which are the same in both eras."""

    DISCONNECTED = "disconnected", "Disconnected"
    CONNECTING = "connecting", "Connecting"
    INITIALIZING = "initializing", "Initializing"
    READY = "ready", "Ready"
    DISCONNECTING = "disconnecting", "Disconnecting"


class SessionCondition(TextChoices):
    """Why a session is not in its desired state."""

    NONE = "none", ""
    WAITING_WORKER = "waiting_worker", "Waiting for a worker"
    BACKING_OFF = "backing_off", "Retrying"
    NEEDS_AUTH = "needs_auth", "Needs authorization"
    INCOMPATIBLE = "incompatible", "Incompatible"
    PAUSED = "paused", "Paused"
    FAILING = "failing", "Failing"
    REFUSED = "refused", "Refused"


class Desired(TextChoices):
    OPEN = "open", "Open"
    CLOSED = "closed", "Closed"


class CallState(TextChoices):
    HELD = "held", "Waiting for approval"
    REQUESTED = "requested", "Requested"
    SENT = "sent", "Running"
    SUCCEEDED = "succeeded", "Succeeded"
    TOOL_ERROR = "tool_error", "Tool error"
    RPC_ERROR = "rpc_error", "JSON-RPC error"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"
    OUTCOME_UNKNOWN = "outcome_unknown", "Outcome unknown"
    NOT_SENT = "not_sent", "Not sent"
    REFUSED = "refused", "Refused"
    EXPIRED = "expired", "Expired"

    @property
    def final(self) -> bool:
        return self not in (*UNSENT, CallState.SENT)


#: nothing of these calls has been sent yet
UNSENT = (CallState.HELD, CallState.REQUESTED)


class ArgumentProblemKind(TextChoices):
    """Why a person was asked before the arguments of a call were sent."""

    NONE = "", ""
    UNCHECKED = "unchecked", "Sent unchecked"
    INVALID = "invalid", "Sent with invalid arguments"


class ApprovalState(TextChoices):
    """The state of a call that a policy holds. Every state except OPEN is final."""

    OPEN = "open", "Waiting for approval"
    APPROVED = "approved", "Approved"
    REFUSED = "refused", "Refused"
    EXPIRED = "expired", "Expired"
    VOIDED = "voided", "Voided"
    CANCELLED = "cancelled", "Cancelled"


class WireDirection(TextChoices):
    SENT = "sent", "Sent"
    RECEIVED = "received", "Received"


class WireKind(TextChoices):
    """The kind of a recorded wire row. The first five are JSON-RPC messages."""

    REQUEST = "request", "Request"
    NOTIFICATION = "notification", "Notification"
    RESULT = "result", "Result"
    ERROR = "error", "Error"
    INVALID = "invalid", "Not JSON-RPC"
    EXCHANGE = "exchange", "HTTP"
    AUTHORIZATION = "authorization", "Sign-in HTTP"  # an exchange with an authorization server, or to find one
    STREAM_END = "stream_end", "Stream ended"
    DROPPED = "dropped", "Not recorded"

    @property
    def is_message(self) -> bool:
        return self in _MESSAGES


_MESSAGES = (WireKind.REQUEST, WireKind.NOTIFICATION, WireKind.RESULT, WireKind.ERROR, WireKind.INVALID)


class QuestionKind(TextChoices):
    FORM = "form", "Elicitation"
    URL = "url", "Elicitation by URL"
    SAMPLING = "sampling", "Sampling"


class QuestionState(TextChoices):
    """The state of an item of the inbox. Every state except OPEN is final."""

    OPEN = "open", "Waiting for an answer"
    ACCEPTED = "accepted", "Answered"
    DECLINED = "declined", "Declined"
    CANCELLED = "cancelled", "Cancelled"
    EXPIRED = "expired", "Expired"
    WITHDRAWN = "withdrawn", "Withdrawn"


class SubscriptionState(TextChoices):
    """The state of a subscription at the server."""

    WAITING = "waiting", "Waiting for the session"
    REQUESTED = "requested", "Requested"
    LISTENING = "listening", "Listening"
    REFUSED = "refused", "Refused"
    LOST = "lost", "Stream ended"
    ENDED = "ended", "Unsubscribed"


class VersionCause(TextChoices):
    """Why a resource was read."""

    SUBSCRIBED = "subscribed", "First read"
    UPDATED = "updated", "Update"
    AFTER_GAP = "after_gap", "Read after gap"
    ASKED = "asked", "Manual read"
    POLLED = "polled", "Polled"


class DeliveryState(TextChoices):
    PENDING = "pending", "Pending"
    DELIVERED = "delivered", "Delivered"
    GIVEN_UP = "given_up", "Failed"


class LogSource(TextChoices):
    SERVER = "server", "Server message"
    STDERR = "stderr", "stderr"
    HOST = "host", "mcpadmin"


class StoredKind(TextChoices):
    """The kinds of data with their own retention limits."""

    CALLS = "calls", "Calls"
    PAYLOADS = "payloads", "Arguments and results"
    EVENTS = "events", "Audit events"
    LOGS = "logs", "Server logs"
    VERSIONS = "versions", "Resource versions"
    MESSAGES = "messages", "Protocol messages"
