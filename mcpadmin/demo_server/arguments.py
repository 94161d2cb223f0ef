"""Reads a tool's arguments. A problem is a ToolFailure in words that a person, or a model, can act on."""

from typing import Any

from mcpadmin.demo_server.errors import ToolFailure

_MISSING = object()


class Arguments:
    """`where` is the path to an inner object, for messages."""

    def __init__(self, values: dict[str, Any], where: str = "") -> None:
        self._values, self._where = values, where

    def refuse_others(self, *known: str) -> None:
        if unknown := sorted(self._values.keys() - set(known)):
            raise ToolFailure(f"Unknown argument: {', '.join(self._where + name for name in unknown)}.")

    def _take(self, name: str, kinds: tuple[type, ...], words: str, default: Any) -> Any:
        value = self._values.get(name, default)
        if value is _MISSING:
            raise ToolFailure(f"{self._where}{name} is missing: give it {words}.")
        # JSON's true is no number, Python's is.
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
            raise ToolFailure(f"{self._where}{name} may hold {', '.join(choices)}.")
        return values

    def inner(self, name: str) -> "Arguments":
        return Arguments(self._take(name, (dict,), "an object", {}), f"{self._where}{name}.")
