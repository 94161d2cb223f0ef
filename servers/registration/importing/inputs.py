"""Values that a configuration asks the user for: VS Code's `inputs`, variables in the registry's `server.json`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST_CHOICES = 50


@dataclass(frozen=True)
class Input:
    description: str = ""
    default: str = ""
    secret: bool = False
    choices: tuple[str, ...] = ()


def inputs_of(given: Any) -> dict[str, Input]:
    """VS Code's `inputs`: promptString and pickString."""
    rows = [row for row in given if isinstance(row, dict)] if isinstance(given, list) else []
    return {row["id"]: _input(row) for row in rows if isinstance(row.get("id"), str)}


def _input(row: Mapping[str, Any]) -> Input:
    secret = row.get("password") is True
    options = row.get("options")
    choices = tuple(filter(None, (words(option) for option in options))) if isinstance(options, list) else ()
    return Input(
        words(row.get("description")), "" if secret else words(row.get("default")), secret, choices[:_MOST_CHOICES]
    )


def words(value: Any) -> str:
    if isinstance(value, dict):  # a VS Code option with a label
        value = value.get("value", value.get("label"))
    return value[:500] if isinstance(value, str) else ""
