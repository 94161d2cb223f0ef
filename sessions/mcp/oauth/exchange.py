"""One HTTP exchange of a flow, as data."""

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """`headers` and `body` may hold secrets. Only a GET may follow redirects, and never to another origin."""

    verb: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Header names are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> dict[str, Any] | None:
        """The JSON object in the body, or None if there is none."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


#: Yields requests, receives their responses, and returns the result of the flow.
Exchange = Generator[HttpRequest, HttpResponse, Result]


def get(url: str) -> HttpRequest:
    return HttpRequest("GET", url, {"Accept": "application/json"})


def form(url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> HttpRequest:
    """A POST in the format of token endpoints (RFC 6749 section 4.1.3)."""
    kinds = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    return HttpRequest("POST", url, {**kinds, **headers}, urlencode(dict(fields)).encode())


def post_json(url: str, content: Mapping[str, Any]) -> HttpRequest:
    kinds = {"Accept": "application/json", "Content-Type": "application/json"}
    return HttpRequest("POST", url, kinds, json.dumps(content).encode())
