"""The tables of sessions, calls, questions, subscriptions and workers."""

from sessions.models.agent import AgentAttachment, AgentCall, AgentFollow, AgentRound, AgentSession
from sessions.models.approval import Approval
from sessions.models.call import Attempt, Call, IndexCursor
from sessions.models.connection import ConnectionEvent
from sessions.models.log import LogLine
from sessions.models.question import Question
from sessions.models.retention import RetentionLimit, StorageHour
from sessions.models.saved_call import SavedCall
from sessions.models.saved_view import SavedView
from sessions.models.server_task import ServerTask
from sessions.models.session import McpSession
from sessions.models.statistics import CallRollup, RollupCursor, UncountedCall
from sessions.models.subscription import (
    ResourceVersion,
    Subscription,
    SubscriptionGap,
    SubscriptionHour,
    WebhookDelivery,
)
from sessions.models.wire import WireMessage
from sessions.models.worker import Worker

__all__ = [
    "AgentAttachment",
    "AgentCall",
    "AgentFollow",
    "AgentRound",
    "AgentSession",
    "Approval",
    "Attempt",
    "Call",
    "CallRollup",
    "ConnectionEvent",
    "IndexCursor",
    "LogLine",
    "McpSession",
    "Question",
    "ResourceVersion",
    "RetentionLimit",
    "RollupCursor",
    "SavedCall",
    "SavedView",
    "ServerTask",
    "StorageHour",
    "Subscription",
    "SubscriptionGap",
    "SubscriptionHour",
    "UncountedCall",
    "WebhookDelivery",
    "WireMessage",
    "Worker",
]
