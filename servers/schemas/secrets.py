"""What a schema declares secret: a page keeps no draft of it."""

from typing import Any


def is_secret(flat: dict[str, Any]) -> bool:
    return flat.get("writeOnly") is True or flat.get("format") == "password"


def holds_secret(schema: Any) -> bool:
    """Anywhere in it, also where `$ref` leads: definitions stand in the same document."""
    parts = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if is_secret(part):
                return True
            parts.extend(part.values())
        elif isinstance(part, list):
            parts.extend(part)
    return False
