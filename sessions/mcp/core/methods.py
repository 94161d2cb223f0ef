"""Method names and the facts of the schema about each method, in one place.

Source: schema.ts of each revision; for the headers 2026-07-28 *Transports / Streamable HTTP*.
"""

from typing import Final

from .events import ListKind

INITIALIZE: Final = "initialize"
DISCOVER: Final = "server/discover"
PING: Final = "ping"
TOOLS_LIST: Final = "tools/list"
TOOLS_CALL: Final = "tools/call"
RESOURCES_LIST: Final = "resources/list"
TEMPLATES_LIST: Final = "resources/templates/list"
RESOURCES_READ: Final = "resources/read"
RESOURCES_SUBSCRIBE: Final = "resources/subscribe"
RESOURCES_UNSUBSCRIBE: Final = "resources/unsubscribe"
LISTEN: Final = "subscriptions/listen"
PROMPTS_LIST: Final = "prompts/list"
PROMPTS_GET: Final = "prompts/get"
COMPLETE: Final = "completion/complete"
SET_LEVEL: Final = "logging/setLevel"
TASKS_GET: Final = "tasks/get"
TASKS_RESULT: Final = "tasks/result"
TASKS_LIST: Final = "tasks/list"
TASKS_CANCEL: Final = "tasks/cancel"
TASKS_UPDATE: Final = "tasks/update"

INITIALIZED: Final = "notifications/initialized"
CANCELLED: Final = "notifications/cancelled"
PROGRESS: Final = "notifications/progress"
MESSAGE: Final = "notifications/message"
RESOURCE_UPDATED: Final = "notifications/resources/updated"
#: task state changed: 2025-11-25, and the extension of 2026-07-28
TASK_STATUS: Final = "notifications/tasks/status"
TASK_CHANGED: Final = "notifications/tasks"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

#: list kind -> (method, member of the result, member that identifies an entry, server capability)
LISTS: Final = {
    ListKind.TOOLS: (TOOLS_LIST, "tools", "name", "tools"),
    ListKind.RESOURCES: (RESOURCES_LIST, "resources", "uri", "resources"),
    ListKind.RESOURCE_TEMPLATES: (TEMPLATES_LIST, "resourceTemplates", "uriTemplate", "resources"),
    ListKind.PROMPTS: (PROMPTS_LIST, "prompts", "name", "prompts"),
}

#: change nothing on the server, and it does not matter how often they are sent: an unanswered one may be repeated
REPEATABLE: Final = frozenset({DISCOVER, INITIALIZE, INITIALIZED, PING, *(method for method, *_ in LISTS.values())})

#: the same facts for the list of tasks, which only 2025-11-25 has
TASKS: Final = (TASKS_LIST, "tasks", "taskId", "tasks")

LIST_CHANGED: Final = {
    "notifications/tools/list_changed": ListKind.TOOLS,
    "notifications/resources/list_changed": ListKind.RESOURCES,
    "notifications/prompts/list_changed": ListKind.PROMPTS,
}

#: list kind -> the member of a modern listen request that asks for its changes (resources cover templates)
LIST_FILTERS: Final = {
    ListKind.TOOLS: "toolsListChanged",
    ListKind.RESOURCES: "resourcesListChanged",
    ListKind.RESOURCE_TEMPLATES: "resourcesListChanged",
    ListKind.PROMPTS: "promptsListChanged",
}

#: least to most severe (RFC 5424), as `logging/setLevel` and the modern `logLevel` spell them
LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

#: modern HTTP: the parameter that the header Mcp-Name repeats
NAMED_BY: Final = {
    TOOLS_CALL: "name",
    PROMPTS_GET: "name",
    RESOURCES_READ: "uri",
    TASKS_GET: "taskId",
    TASKS_UPDATE: "taskId",
    TASKS_CANCEL: "taskId",
}
