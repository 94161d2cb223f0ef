"""What the tools say about themselves: title, description, JSON Schemas, annotations. One entry a tool."""

from typing import Any

from mcpadmin.demo_server.notes import TAGS
from mcpadmin.demo_server.picture import COLOURS, SHAPES

Schema = dict[str, Any]
READS_ONLY = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | {"required": list(required)} if required else schema


def _choice(choices: Any, description: str, **more: Any) -> Schema:
    return {"type": "string", "enum": list(choices), "description": description} | more


def _integer(low: int, high: int, default: int, description: str) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high, "default": default, "description": description}


_NOTE = _object(
    ("name", "title", "created", "tags"),
    name={"type": "string"},
    title={"type": "string"},
    created={"type": "string", "format": "date"},
    tags={"type": "array", "items": {"type": "string"}},
    text={"type": "string"},
)

SCHEMAS: dict[str, Schema] = {
    "greet": {
        "title": "Greet",
        "description": "Says hello to somebody, in one of four languages.",
        "inputSchema": _object(
            ("name",),
            name={"type": "string", "description": "Who is greeted.", "examples": ["Ada"]},
            language=_choice(("english", "french", "german", "japanese"), "In which language.", default="english"),
        ),
        "annotations": READS_ONLY,
    },
    "add": {
        "title": "Add",
        "description": "Adds two numbers; the answer comes as structured content that fits the output schema.",
        "inputSchema": _object(("a", "b"), a={"type": "number"}, b={"type": "number"}),
        "outputSchema": _object(
            ("sum", "terms"), sum={"type": "number"}, terms={"type": "array", "items": {"type": "number"}}
        ),
        "annotations": READS_ONLY,
    },
    "countdown": {
        "title": "Count down",
        "description": "Counts down slowly and reports its progress. Can be cancelled at any time.",
        "inputSchema": _object(
            start=_integer(1, 60, 5, "Where the count starts."),
            pause={
                "type": "number",
                "minimum": 0.01,
                "maximum": 5,
                "default": 1.0,
                "description": "Seconds between two numbers.",
            },
        ),
        "annotations": READS_ONLY,
    },
    "draw": {
        "title": "Draw",
        "description": "Draws a simple shape and returns it as a PNG image.",
        "inputSchema": _object(
            shape=_choice(SHAPES, "What is drawn.", default="circle"),
            colour=_choice(COLOURS, "In which colour.", default="blue"),
            size=_integer(16, 256, 96, "Width and height in pixels."),
        ),
        "annotations": READS_ONLY,
    },
    "search_notes": {
        "title": "Search notes",
        "description": "Finds notes by words, tags and date. Shows what a form for a rich schema looks like.",
        "inputSchema": _object(
            words={"type": "string", "description": "Words that all occur in the title or the text.", "default": ""},
            tags={
                "type": "array",
                "items": {"type": "string", "enum": list(TAGS)},
                "uniqueItems": True,
                "description": "Notes with any of these tags; none means all.",
            },
            created=_object(
                after={"type": "string", "format": "date", "description": "Created on this day or later."},
                before={"type": "string", "format": "date", "description": "Created on this day or earlier."},
            )
            | {"title": "Created", "description": "A span of days; either end may be left out."},
            sort=_choice(("newest", "oldest", "title"), "The order of the answer.", default="newest"),
            limit=_integer(1, 20, 5, "How many notes at most."),
            with_text={"type": "boolean", "default": True, "description": "Whether the text comes along."},
        ),
        "outputSchema": _object(
            ("total", "notes"), total={"type": "integer", "minimum": 0}, notes={"type": "array", "items": _NOTE}
        ),
        "annotations": READS_ONLY,
    },
    "forget_notes": {
        "title": "Forget notes",
        "description": "Removes every note with a tag. There is no way back until the server is started anew.",
        "inputSchema": _object(("tag",), tag=_choice(TAGS, "Which notes are removed.")),
        "annotations": {
            "readOnlyHint": False,
            "destructiveHint": True,
            "idempotentHint": True,
            "openWorldHint": False,
        },
    },
    "fail_on_purpose": {
        "title": "Fail on purpose",
        "description": "Always answers with isError, to show how a tool's own failure looks.",
        "inputSchema": _object(message={"type": "string", "description": "What the failure says."}),
        "annotations": READS_ONLY,
    },
}
