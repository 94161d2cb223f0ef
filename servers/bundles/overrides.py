"""How a bundle presents a tool differently from its server: its description, and the parameters that it hides."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from servers.schemas.input_schema import input_schema_of

DESCRIPTION_CHARS: Final = 4_000
MOST_HIDDEN: Final = 100


@dataclass(frozen=True)
class Override:
    """`description` empty: the server's own. `hidden`: names of parameters, sorted."""

    description: str = ""
    hidden: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.description or self.hidden)

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.value()).encode()).hexdigest() if self else ""

    def value(self) -> dict[str, Any]:
        """The value that is stored, exported and audited."""
        found: dict[str, Any] = {"description": self.description} if self.description else {}
        return found | ({"hidden": list(self.hidden)} if self.hidden else {})


NONE: Final = Override()


def stored(overrides: Mapping[str, Any], tool: str) -> Override:
    """The override of a tool, from the column of a member. Never raises: an invalid override changes nothing."""
    value = overrides.get(tool)
    if not isinstance(value, dict):
        return NONE
    description, hidden = value.get("description", ""), value.get("hidden", [])
    names = sorted(name for name in hidden if isinstance(name, str)) if isinstance(hidden, list) else []
    return Override(description if isinstance(description, str) else "", tuple(names))


def applied(tool: Mapping[str, Any], override: Override) -> dict[str, Any]:
    found = dict(tool)
    if override.description:
        found["description"] = override.description
    if gone := left_out(tool, override):
        schema = dict(tool["inputSchema"])
        schema["properties"] = {name: value for name, value in schema["properties"].items() if name not in gone}
        found["inputSchema"] = schema
    return found


def left_out(tool: Mapping[str, Any], override: Override) -> frozenset[str]:
    """The parameters to hide, without those that the server requires or no longer has."""
    optional = frozenset(name for name, required in parameters(tool).items() if not required)
    return optional & frozenset(override.hidden)


def parameters(tool: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each is required, in the order of the schema."""
    schema = input_schema_of(tool)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    return {name: name in needed for name in properties} if isinstance(properties, dict) else {}
