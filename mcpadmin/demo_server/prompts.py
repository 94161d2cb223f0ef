"""The prompts, and the completion of their arguments and of the note template."""

from collections.abc import Callable
from typing import Any

from mcpadmin.demo_server.call import Call
from mcpadmin.demo_server.errors import INVALID_PARAMS, RpcError
from mcpadmin.demo_server.notes import Store
from mcpadmin.demo_server.resources import NOTE_PREFIX

STYLES = ("short", "bullet points", "for a child", "as a haiku")
TOPICS = ("capabilities", "elicitation", "prompts", "resources", "sampling", "subscriptions", "tools")
MAX_VALUES = 100  # of one completion, by the specification

PROMPTS: dict[str, dict[str, Any]] = {
    "summarise": {
        "name": "summarise",
        "title": "Summarise a note",
        "description": "Asks for a summary of one note in a style of your choice.",
        "arguments": [
            {"name": "note", "description": "Name of the note.", "required": True},
            {"name": "style", "description": "How the summary reads.", "required": False},
        ],
    },
    "explain": {
        "name": "explain",
        "title": "Explain a part of MCP",
        "description": "Asks for an explanation of one feature of the Model Context Protocol.",
        "arguments": [
            {"name": "topic", "description": "The feature.", "required": True},
            {"name": "audience", "description": "Who will read it.", "required": False},
        ],
    },
}


def _message(content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _text(text: str) -> dict[str, Any]:
    return _message({"type": "text", "text": text})


def _ref_key(ref: dict[str, Any], argument: Any) -> tuple[str, str]:
    return str(ref.get("name" if ref.get("type") == "ref/prompt" else "uri")), str(argument)


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

    def definitions(self) -> list[dict[str, Any]]:
        return [*PROMPTS.values()]

    def get(self, call: Call) -> dict[str, Any]:
        definition = PROMPTS.get(call.text("name"))
        if definition is None:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {call.text('name')}")
        arguments = self._arguments(definition, call.params.get("arguments", {}))
        messages = self._summarise(arguments) if definition["name"] == "summarise" else self._explain(arguments)
        return {"description": definition["description"], "messages": messages}

    def _arguments(self, definition: dict[str, Any], given: Any) -> dict[str, str]:
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise RpcError(INVALID_PARAMS, "params.arguments must be an object of strings.")
        missing = [a["name"] for a in definition["arguments"] if a["required"] and not given.get(a["name"])]
        if missing:
            raise RpcError(INVALID_PARAMS, f"Missing argument: {', '.join(missing)}")
        return given

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
        values = self._completions.get(_ref_key(ref, argument.get("name")), tuple)()
        typed = str(argument.get("value", "")).lower()
        found = [value for value in values if value.lower().startswith(typed)]
        completion = {"values": found[:MAX_VALUES], "total": len(found), "hasMore": len(found) > MAX_VALUES}
        return {"completion": completion}

    def _note_names(self) -> tuple[str, ...]:
        return tuple(note.name for note in self._store.all())
