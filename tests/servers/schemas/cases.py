"""Tool schemas for the form tests: real ones of two reference servers, and shapes designed to break it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Case:
    """`minimal` and `full` are valid values. `json_controls` counts the parts of `full` that the form shows as JSON."""

    name: str
    schema: Any
    minimal: Any
    full: Any
    json_controls: int = 0

    def __str__(self) -> str:
        return self.name


def real_tools() -> list[Case]:
    return [
        Case(f"{server}:{tool['name']}", schema, sample(schema, full=False), sample(schema, full=True))
        for server in ("everything", "filesystem")
        for tool in json.loads((FOLDER / f"{server}.json").read_text())["tools"]
        for schema in [tool["inputSchema"]]
    ]


def nasty_tools() -> list[Case]:
    return [Case(**case) for case in json.loads((FOLDER / "nasty.json").read_text())]


def sample(schema: dict[str, Any], *, full: bool) -> Any:
    """A valid value for the plain schemas that the reference servers use."""
    if "enum" in schema:
        return schema["enum"][-1]
    kind = schema["type"]
    if kind == "object":
        names = schema.get("properties", {}) if full else schema.get("required", [])
        return {name: sample(schema["properties"][name], full=full) for name in names}
    if kind == "array":
        return [sample(schema["items"], full=full)] * (2 if full else schema.get("minItems", 0))
    text = "https://example.com/a?b=c&d" if "format" in schema else 'a b\n<c> & "d"' if full else "a"
    return {"string": text, "number": schema.get("minimum", 2.5), "boolean": full}[kind]
