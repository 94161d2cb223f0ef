"""The prompts, and completion for their arguments and for the note template."""

from collections.abc import Callable
from typing import Any

from mcpadmin.demo_server.resources import NOTE_PREFIX, Store
from mcpadmin.demo_server.rpc import INVALID_PARAMS, Call, RpcError

STYLES = ("short", "bullet points", "for a child", "as a haiku")
TOPICS = ("capabilities", "elicitation", "prompts", "resources", "sampling", "subscriptions", "tools")
MAX_VALUES = 100  # per completion, as the specification limits it

PROMPTS: dict[str, dict[str, Any]] = {
    "summarise": {
        "name": "summarise",
        "title": "Summarise a note",
        "description": "Asks for a summary of one note in a style of your choice.",
        "arguments": [
            {"name": "note", "description": "Name of the note.", "required": True},
            {"name": "style", "description": "The style of the summary.", "required": False},
        ],
    },
    "explain": {
        "name": "explain",
        "title": "Explain an MCP feature",
        "description": "Asks for an explanation of one feature of the Model Context Protocol.",
        "arguments": [
            {"name": "topic", "description": "The MCP feature to explain.", "required": True},
            {"name": "audience", "description": "The readers of the explanation.", "required": False},
        ],
    },
}


def _message(content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _text(text: str) -> dict[str, Any]:
    return _message({"type": "text", "text": text})


class Prompts:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._completions: dict[tuple[str, str], Callable[[], tuple[str, ...]]] = {
            ("summarise", "note"): self._note_names,
            ("summarise", "style"): lambda: STYLES,
            ("explain", "topic"): lambda: TOPICS,
            ("explain", "audience"): lambda: ("beginners", "developers", "operators"),
            (NOTE_PREFIX + "{name}", "name"): self._note_names,
        }

    def get(self, call: Call) -> dict[str, Any]:
        definition = PROMPTS.get(call.text("name"))
        if definition is None:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {call.text('name')}")
        arguments = call.params.get("arguments", {})
        if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in arguments.values()):
            raise RpcError(INVALID_PARAMS, "params.arguments must be an object of strings.")
        missing = [a["name"] for a in definition["arguments"] if a["required"] and not arguments.get(a["name"])]
        if missing:
            raise RpcError(INVALID_PARAMS, f"Missing argument: {', '.join(missing)}")
        messages = self._summarise(arguments) if definition["name"] == "summarise" else self._explain(arguments)
        return {"description": definition["description"], "messages": messages}

    def _summarise(self, arguments: dict[str, str]) -> list[dict[str, Any]]:
        note = self._store.get(arguments["note"])
        if note is None:
            raise RpcError(INVALID_PARAMS, f"There is no note called {arguments['note']}.")
        resource = {"uri": NOTE_PREFIX + note.name, "mimeType": "text/plain", "text": note.text}
        style = arguments.get("style") or STYLES[0]
        return [
            _text(f"Summarise the note “{note.title}” ({style})."),
            _message({"type": "resource", "resource": resource}),
        ]

    def _explain(self, arguments: dict[str, str]) -> list[dict[str, Any]]:
        audience = arguments.get("audience") or "beginners"
        return [_text(f"Explain {arguments['topic']} of the Model Context Protocol for {audience}.")]

    def complete(self, call: Call) -> dict[str, Any]:
        ref, argument = call.params.get("ref"), call.params.get("argument")
        if not isinstance(ref, dict) or not isinstance(argument, dict):
            raise RpcError(INVALID_PARAMS, "params.ref and params.argument must be objects.")
        of = str(ref.get("name" if ref.get("type") == "ref/prompt" else "uri"))
        values = self._completions.get((of, str(argument.get("name"))), tuple)()
        typed = str(argument.get("value", "")).lower()
        found = [value for value in values if value.lower().startswith(typed)]
        completion = {"values": found[:MAX_VALUES], "total": len(found), "hasMore": len(found) > MAX_VALUES}
        return {"completion": completion}

    def _note_names(self) -> tuple[str, ...]:
        return tuple(note.name for note in self._store.all())
