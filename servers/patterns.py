"""Patterns of rules for tools, resources and prompts."""

from fnmatch import fnmatchcase


def matches(pattern: str, name: str) -> bool:
    """`*` and `?` alone have a meaning: URIs may hold brackets."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))
