"""References in the values of a registration: `${NAME}`, a variable of the worker that opens the session."""

import re

# not after another `$`: `$${` is a literal `${`
_REFERENCE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*|file:[^{}\x00-\x1f]{1,500})\}")


def references(text: str) -> list[str]:
    """The names that `text` refers to, in order."""
    return _REFERENCE.findall(text)


def is_reference(text: str) -> bool:
    """Whether `text` is a single reference and nothing else."""
    return _REFERENCE.fullmatch(text) is not None


def without_references(text: str) -> str:
    return _REFERENCE.sub("", text)
