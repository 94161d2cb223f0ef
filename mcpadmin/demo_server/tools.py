"""The tools: their definitions, the parsing of their arguments, and their implementations."""

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

from mcpadmin.demo_server.resources import NOTE_PREFIX, TAGS, Note, Store
from mcpadmin.demo_server.rpc import INVALID_PARAMS, Call, RpcError

Schema = dict[str, Any]
Result = dict[str, Any]
Inside = Callable[[float, float], bool]

BACKGROUND = (246, 248, 251)
COLOURS = {"blue": (32, 107, 196), "green": (47, 179, 68), "orange": (247, 103, 7), "red": (214, 57, 57)}
# Each function takes x and y from -1 to 1.
SHAPES: dict[str, Inside] = {
    "circle": lambda x, y: x * x + y * y < 0.64,
    "diamond": lambda x, y: abs(x) + abs(y) < 0.85,
    "stripes": lambda x, y: int((x + y + 2) * 4) % 2 == 0,
}
GREETINGS = {"english": "Hello", "french": "Bonjour", "german": "Guten Tag", "japanese": "こんにちは"}
SORTS: dict[str, tuple[Callable[[Note], str], bool]] = {
    "newest": (lambda note: note.created, True),
    "oldest": (lambda note: note.created, False),
    "title": (lambda note: note.title, False),
}
FIRST_WITH_LINKS = "2025-06-18"  # resource_link content exists since this revision
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
        "description": "Says hello in one of four languages.",
        "inputSchema": _object(
            ("name",),
            name={"type": "string", "description": "Who to greet.", "examples": ["Ada"]},
            language=_choice(
                ("english", "french", "german", "japanese"), "The language of the greeting.", default="english"
            ),
        ),
        "annotations": READS_ONLY,
    },
    "add": {
        "title": "Add",
        "description": "Adds two numbers and returns structured content that matches the output schema.",
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
            start=_integer(1, 60, 5, "The number to start from."),
            pause={
                "type": "number",
                "minimum": 0.01,
                "maximum": 5,
                "default": 1.0,
                "description": "Seconds between numbers.",
            },
        ),
        "annotations": READS_ONLY,
    },
    "draw": {
        "title": "Draw",
        "description": "Draws a simple shape and returns it as a PNG image.",
        "inputSchema": _object(
            shape=_choice(SHAPES, "The shape to draw.", default="circle"),
            colour=_choice(COLOURS, "The colour of the shape.", default="blue"),
            size=_integer(16, 256, 96, "Width and height in pixels."),
        ),
        "annotations": READS_ONLY,
    },
    "search_notes": {
        "title": "Search notes",
        "description": "Finds notes by text, tag and date. Shows the form of a complex schema.",
        "inputSchema": _object(
            words={"type": "string", "description": "Words that must all occur in the title or text.", "default": ""},
            tags={
                "type": "array",
                "items": {"type": "string", "enum": list(TAGS)},
                "uniqueItems": True,
                "description": "Match any of these tags. Leave empty to match all notes.",
            },
            created=_object(
                after={"type": "string", "format": "date", "description": "Created on this day or later."},
                before={"type": "string", "format": "date", "description": "Created on this day or earlier."},
            )
            | {"title": "Created", "description": "Date range. Both ends are optional."},
            sort=_choice(("newest", "oldest", "title"), "Sort order.", default="newest"),
            limit=_integer(1, 20, 5, "Maximum number of notes."),
            with_text={"type": "boolean", "default": True, "description": "Whether to include the text of the notes."},
        ),
        "outputSchema": _object(
            ("total", "notes"), total={"type": "integer", "minimum": 0}, notes={"type": "array", "items": _NOTE}
        ),
        "annotations": READS_ONLY,
    },
    "forget_notes": {
        "title": "Forget notes",
        "description": "Removes every note with a tag. The notes come back only when the server restarts.",
        "inputSchema": _object(("tag",), tag=_choice(TAGS, "The tag of the notes to remove.")),
        "annotations": {
            "readOnlyHint": False,
            "destructiveHint": True,
            "idempotentHint": True,
            "openWorldHint": False,
        },
    },
    "fail_on_purpose": {
        "title": "Fail on purpose",
        "description": "Always fails with isError, to show what a tool error looks like.",
        "inputSchema": _object(message={"type": "string", "description": "The error message."}),
        "annotations": READS_ONLY,
    },
}


class ToolFailure(Exception):
    """The call was valid but the tool failed. Becomes a result with `isError`."""


_MISSING = object()


class Arguments:
    """Reads a tool's arguments. A problem raises ToolFailure with a message that a person or a model can act on.

    `where` is the path to a nested object, for messages."""

    def __init__(self, values: dict[str, Any], where: str = "") -> None:
        self._values, self._where = values, where

    def refuse_others(self, *known: str) -> None:
        if unknown := sorted(self._values.keys() - set(known)):
            raise ToolFailure(f"Unknown argument: {', '.join(self._where + name for name in unknown)}.")

    def _take(self, name: str, kinds: tuple[type, ...], words: str, default: Any) -> Any:
        value = self._values.get(name, default)
        if value is _MISSING:
            raise ToolFailure(f"{self._where}{name} is missing: give it {words}.")
        # In JSON, true is not a number; in Python, bool is an int.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ToolFailure(f"{self._where}{name} must be {words}.")
        return value

    def text(self, name: str, default: Any = _MISSING) -> str:
        return str(self._take(name, (str,), "text", default))

    def number(self, name: str, default: Any = _MISSING, *, low: float = -1e15, high: float = 1e15) -> int | float:
        value: int | float = self._take(name, (int, float), "a number", default)
        if not low <= value <= high:
            raise ToolFailure(f"{self._where}{name} must be a number from {low:g} to {high:g}.")
        return value

    def whole(self, name: str, default: Any = _MISSING, *, low: int, high: int) -> int:
        value = self.number(name, default, low=low, high=high)
        if value != int(value):
            raise ToolFailure(f"{self._where}{name} must be a whole number.")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._take(name, (bool,), "true or false", default))

    def choice(self, name: str, choices: tuple[str, ...], default: Any = _MISSING) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise ToolFailure(f"{self._where}{name} must be one of {', '.join(choices)}.")
        return value

    def choices(self, name: str, choices: tuple[str, ...]) -> list[str]:
        values: list[Any] = self._take(name, (list,), "a list", [])
        if any(value not in choices for value in values):
            raise ToolFailure(f"{self._where}{name} may contain {', '.join(choices)}.")
        return values

    def inner(self, name: str) -> "Arguments":
        return Arguments(self._take(name, (dict,), "an object", {}), f"{self._where}{name}.")


def png(shape: str, colour: str, size: int) -> bytes:
    """A square image of `size` pixels, drawn with zlib only (ISO/IEC 15948: 8-bit RGB, filter 0).

    `shape` and `colour` are keys of SHAPES and COLOURS."""
    inside, ink, paper = SHAPES[shape], bytes(COLOURS[colour]), bytes(BACKGROUND)
    centres = [(2 * pixel + 1) / size - 1 for pixel in range(size)]
    rows = b"".join(b"\0" + b"".join(ink if inside(x, y) else paper for x in centres) for y in centres)
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    chunks = (b"IHDR" + header, b"IDAT" + zlib.compress(rows), b"IEND")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


def text_result(text: str, **more: Any) -> Result:
    return {"content": [{"type": "text", "text": text}], "isError": False} | more


def structured_result(value: dict[str, Any]) -> Result:
    """Clients before 2025-06-18 read the text, newer ones the structured content."""
    return text_result(json.dumps(value, ensure_ascii=False, indent=2), structuredContent=value)


class Tool(NamedTuple):
    run: Callable[["Tools", Arguments, Call], Result]
    definition: dict[str, Any]


class Tools:
    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self, call: Call) -> Result:
        """Raises RpcError when the tool does not exist. A failure of the tool itself is a result with `isError`."""
        tool = TOOLS.get(call.text("name"))
        if tool is None:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {call.text('name')}")
        values = call.params.get("arguments", {})
        if not isinstance(values, dict):
            raise RpcError(INVALID_PARAMS, "params.arguments must be an object.")
        try:
            arguments = Arguments(values)
            arguments.refuse_others(*tool.definition["inputSchema"]["properties"])
            return tool.run(self, arguments, call)
        except ToolFailure as failure:
            return text_result(str(failure), isError=True)

    def greet(self, arguments: Arguments, call: Call) -> Result:
        name = arguments.text("name").strip() or "stranger"
        greeting = GREETINGS[arguments.choice("language", tuple(GREETINGS), "english")]
        call.log("info", "greet", f"greeting {name}")
        return text_result(f"{greeting}, {name}!")

    def add(self, arguments: Arguments, call: Call) -> Result:
        a, b = arguments.number("a"), arguments.number("b")
        return structured_result({"sum": a + b, "terms": [a, b]})

    def countdown(self, arguments: Arguments, call: Call) -> Result:
        start = arguments.whole("start", 5, low=1, high=60)
        pause = arguments.number("pause", 1.0, low=0.01, high=5)
        for done in range(1, start + 1):
            call.wait(pause)
            call.progress(done, start, f"{start - done} to go")
            call.log("debug", "countdown", {"left": start - done})
        return text_result("Lift-off!")

    def draw(self, arguments: Arguments, call: Call) -> Result:
        shape = arguments.choice("shape", tuple(SHAPES), "circle")
        colour = arguments.choice("colour", tuple(COLOURS), "blue")
        image = png(shape, colour, arguments.whole("size", 96, low=16, high=256))
        content = {"type": "image", "mimeType": "image/png", "data": b64encode(image).decode()}
        return {"content": [content, {"type": "text", "text": f"A {colour} {shape}."}], "isError": False}

    def fail_on_purpose(self, arguments: Arguments, call: Call) -> Result:
        message = arguments.text("message", "This tool always fails; that is what it is for.")
        call.log("error", "fail_on_purpose", message)
        raise ToolFailure(message)

    def search_notes(self, arguments: Arguments, call: Call) -> Result:
        span = arguments.inner("created")
        span.refuse_others("after", "before")
        tags = arguments.choices("tags", TAGS)
        words, after, before = arguments.text("words", ""), span.text("after", ""), span.text("before", "")
        key, reverse = SORTS[arguments.choice("sort", tuple(SORTS), "newest")]
        found = [
            note
            for note in self._store.all()
            if all(word in f"{note.title} {note.text}".lower() for word in words.lower().split())
            and (not tags or set(tags) & set(note.tags))
            and (not after or note.created >= after)
            and (not before or note.created <= before)
        ]
        shown = sorted(found, key=key, reverse=reverse)[: arguments.whole("limit", 5, low=1, high=20)]
        with_text = arguments.flag("with_text", True)
        notes = [
            {"name": note.name, "title": note.title, "created": note.created, "tags": list(note.tags)}
            | ({"text": note.text} if with_text else {})
            for note in shown
        ]
        result = structured_result({"total": len(found), "notes": notes})
        if call.version >= FIRST_WITH_LINKS:
            for note in shown:
                link = {"type": "resource_link", "uri": NOTE_PREFIX + note.name, "name": note.name}
                result["content"].append(link | {"title": note.title, "mimeType": "text/plain"})
        return result

    def forget_notes(self, arguments: Arguments, call: Call) -> Result:
        names = self._store.forget(arguments.choice("tag", TAGS))
        call.log("notice", "forget_notes", {"forgotten": names})
        return text_result(f"Forgot {len(names)} notes: {', '.join(names) or 'none had this tag'}.")


RUNNERS: tuple[Callable[[Tools, Arguments, Call], Result], ...] = (
    Tools.greet,
    Tools.add,
    Tools.countdown,
    Tools.draw,
    Tools.search_notes,
    Tools.forget_notes,
    Tools.fail_on_purpose,
)
TOOLS = {run.__name__: Tool(run, {"name": run.__name__, **SCHEMAS[run.__name__]}) for run in RUNNERS}
