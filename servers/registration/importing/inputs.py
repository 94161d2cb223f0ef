"""Values that a configuration asks the user for: VS Code's `inputs`, variables in the registry's `server.json`."""

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
    found = {}
    for row in given if isinstance(given, list) else ():
        if isinstance(row, dict) and isinstance(row.get("id"), str):
            secret, options = row.get("password") is True, row.get("options")
            choices = tuple(filter(None, map(words, options))) if isinstance(options, list) else ()
            default = "" if secret else words(row.get("default"))
            found[row["id"]] = Input(words(row.get("description")), default, secret, choices[:_MOST_CHOICES])
    return found


def words(value: Any) -> str:
    if isinstance(value, dict):  # a VS Code option with a label
        value = value.get("value", value.get("label"))
    return value[:500] if isinstance(value, str) else ""
