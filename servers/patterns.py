"""Patterns of rules for tools, resources and prompts."""

from fnmatch import fnmatchcase


def matches(pattern: str, name: str) -> bool:
    """Only `*` and `?` are special: URIs may contain brackets."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))
