"""Method names, and what each needs: facts of the schema, in one place.

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
PROMPTS_LIST: Final = "prompts/list"
PROMPTS_GET: Final = "prompts/get"
COMPLETE: Final = "completion/complete"

INITIALIZED: Final = "notifications/initialized"
CANCELLED: Final = "notifications/cancelled"
PROGRESS: Final = "notifications/progress"
MESSAGE: Final = "notifications/message"
RESOURCE_UPDATED: Final = "notifications/resources/updated"

#: list kind -> (method, member of the result, member that identifies an entry, server capability)
LISTS: Final = {
    ListKind.TOOLS: (TOOLS_LIST, "tools", "name", "tools"),
    ListKind.RESOURCES: (RESOURCES_LIST, "resources", "uri", "resources"),
    ListKind.RESOURCE_TEMPLATES: (TEMPLATES_LIST, "resourceTemplates", "uriTemplate", "resources"),
    ListKind.PROMPTS: (PROMPTS_LIST, "prompts", "name", "prompts"),
}

LIST_CHANGED: Final = {
    "notifications/tools/list_changed": ListKind.TOOLS,
    "notifications/resources/list_changed": ListKind.RESOURCES,
    "notifications/prompts/list_changed": ListKind.PROMPTS,
}

#: modern HTTP: the parameter that the header Mcp-Name repeats
NAMED_BY: Final = {
    TOOLS_CALL: "name",
    PROMPTS_GET: "name",
    RESOURCES_READ: "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
