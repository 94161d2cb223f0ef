"""References in the values of a registration: `${NAME}`, a variable of the worker that opens the session."""

import re

# after `$$`, which begins a literal `${`, there is none
_REFERENCE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*|file:[^{}\x00-\x1f]{1,500})\}")


def references(text: str) -> list[str]:
    """The names that `text` refers to, in their order."""
    return _REFERENCE.findall(text)


def is_reference(text: str) -> bool:
    """One, and nothing beside it."""
    return _REFERENCE.fullmatch(text) is not None


def without_references(text: str) -> str:
    return _REFERENCE.sub("", text)
