"""The routes of the URLconf, so that a test of all pages has a new one without naming it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver


@dataclass(frozen=True)
class Written:
    """`written`: the path with its parameters, such as /calls/<uuid:uid>/."""

    name: str
    written: str


def written_routes() -> Iterator[Written]:
    """Those of people."""
    for name, written, _ in _walk(get_resolver().url_patterns, "/", ""):
        # Requests to the API carry a token instead of a sign-in: tests/sessions/agents/test_api.py.
        if not written.startswith(("/accounts/", "/api/")):
            yield Written(name, written)


def views() -> Iterator[tuple[str, Any]]:
    """Each path as written, with its view."""
    for _, written, view in _walk(get_resolver().url_patterns, "/", ""):
        yield written, view


def _walk(patterns: list[Any], before: str, namespace: str) -> Iterator[tuple[str, str, Any]]:
    for pattern in patterns:
        written = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            inner = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from _walk(pattern.url_patterns, written, inner)
        elif isinstance(pattern, URLPattern):
            yield namespace + (pattern.name or ""), written, pattern.callback
