"""Text from servers, agents and people in a form that any database accepts: PostgreSQL's text has neither NUL nor lone
surrogates, and UTF-8 has no lone surrogates."""

import re
from collections.abc import Mapping
from typing import Any, Final

_REFUSED: Final = re.compile("[\0\ud800-\udfff]")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_NAME_CHARS: Final = 1_000


def is_storable(text: str) -> bool:
    return "\0" not in text if text.isascii() else _REFUSED.search(text) is None


def storable(text: str, limit: int | None = None) -> str:
    """At most `limit` characters, with U+FFFD in place of each character that a database may reject."""
    text = text[:limit]
    return text if text.isascii() and "\0" not in text else _REFUSED.sub(_REPLACEMENT, text)


def storable_json(value: Any) -> Any:
    """The same for each text and name in a JSON value."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(name), _NAME_CHARS): storable_json(item) for name, item in value.items()}
    return [storable_json(item) for item in value] if isinstance(value, list) else value
