"""The tools: what each says about itself, and what it does."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

from mcpadmin.demo_server import picture
from mcpadmin.demo_server.arguments import Arguments
from mcpadmin.demo_server.call import Call
from mcpadmin.demo_server.errors import INVALID_PARAMS, RpcError, ToolFailure
from mcpadmin.demo_server.notes import TAGS, Note, Store, matches
from mcpadmin.demo_server.schemas import SCHEMAS

GREETINGS = {"english": "Hello", "french": "Bonjour", "german": "Guten Tag", "japanese": "こんにちは"}
SORTS: dict[str, tuple[Callable[[Note], str], bool]] = {
    "newest": (lambda note: note.created, True),
    "oldest": (lambda note: note.created, False),
    "title": (lambda note: note.title, False),
}
FIRST_WITH_LINKS = "2025-06-18"  # resource_link content exists since this revision

Result = dict[str, Any]


def text_result(text: str, **more: Any) -> Result:
    return {"content": [{"type": "text", "text": text}], "isError": False} | more


def structured_result(value: dict[str, Any]) -> Result:
    """Clients before 2025-06-18 read the text, newer ones the structure."""
    return text_result(json.dumps(value, ensure_ascii=False, indent=2), structuredContent=value)


class Tool(NamedTuple):
    run: Callable[["Tools", Arguments, Call], Result]
    definition: dict[str, Any]


class Tools:
    def __init__(self, store: Store) -> None:
        self._store = store

    def definitions(self) -> list[dict[str, Any]]:
        return [tool.definition for tool in TOOLS.values()]

    def run(self, call: Call) -> Result:
        """Raises RpcError when there is no such tool; a tool's own failure is a result with `isError`."""
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
        shape = arguments.choice("shape", tuple(picture.SHAPES), "circle")
        colour = arguments.choice("colour", tuple(picture.COLOURS), "blue")
        image = picture.draw(shape, colour, arguments.whole("size", 96, low=16, high=256))
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
        found = [note for note in self._store.all() if matches(note, words, tags, after, before)]
        shown = sorted(found, key=key, reverse=reverse)[: arguments.whole("limit", 5, low=1, high=20)]
        return _found(shown, len(found), with_text=arguments.flag("with_text", True), version=call.version)

    def forget_notes(self, arguments: Arguments, call: Call) -> Result:
        names = self._store.forget(arguments.choice("tag", TAGS))
        call.log("notice", "forget_notes", {"forgotten": names})
        return text_result(f"Forgot {len(names)} notes: {', '.join(names) or 'none had this tag'}.")


def _found(notes: list[Note], total: int, *, with_text: bool, version: str) -> Result:
    result = structured_result({"total": total, "notes": [_as_json(note, with_text) for note in notes]})
    if version >= FIRST_WITH_LINKS:
        result["content"] += [_link(note) for note in notes]
    return result


def _as_json(note: Note, with_text: bool) -> dict[str, Any]:
    head = {"name": note.name, "title": note.title, "created": note.created, "tags": list(note.tags)}
    return head | {"text": note.text} if with_text else head


def _link(note: Note) -> dict[str, Any]:
    uri = f"demo://notes/{note.name}"
    return {"type": "resource_link", "uri": uri, "name": note.name, "title": note.title, "mimeType": "text/plain"}


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
