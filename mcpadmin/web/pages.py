"""Responses of the server itself to requests that never reach Django."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Final, Literal

from django.template.loader import render_to_string

from mcpadmin.headers import security_headers
from servers import limits
from servers.agents.addresses import PREFIX
from servers.agents.oauth import metadata
from sessions.mcp.core import jsonrpc
from sessions.mcp.server.refusals import UNAUTHORIZED

#: a page for a person; text for a script, which would replace what the person sees with a page; JSON-RPC for an agent;
#: problem details for a client of the HTTP API
Form = Literal["page", "text", "json-rpc", "problem"]
_KINDS: Final[dict[Form, str]] = {
    "page": "text/html; charset=utf-8",
    "text": "text/plain; charset=utf-8",
    "json-rpc": "application/json",
    "problem": "application/problem+json",
}
_CODES: Final = {HTTPStatus.UNAUTHORIZED: UNAUTHORIZED}
#: as sessions/api/problems.py names them
_PROBLEMS: Final = {HTTPStatus.UNAUTHORIZED: "unauthorized", HTTPStatus.SERVICE_UNAVAILABLE: "unavailable"}


@dataclass(frozen=True)
class Refusal:
    """`headers`: in addition to those of every response."""

    status: HTTPStatus
    title: str
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def page(self) -> bytes:
        return _page(int(self.status), self.title, self.text)

    @property
    def error(self) -> bytes:
        """As JSON-RPC. The id is unknown: nothing of the body was read."""
        ours = jsonrpc.INTERNAL_ERROR if self.status >= HTTPStatus.INTERNAL_SERVER_ERROR else jsonrpc.INVALID_REQUEST
        return jsonrpc.error(None, _CODES.get(self.status, ours), f"{self.title}. {self.text}")

    @property
    def problem(self) -> bytes:
        """As problem details (RFC 9457)."""
        kind = f"urn:mcpadmin:problem:{_PROBLEMS.get(self.status, 'invalid')}"
        found = {"type": kind, "title": self.status.phrase, "status": int(self.status), "detail": self.text}
        return json.dumps(found).encode()

    def _body(self, form: Form) -> bytes:
        if form == "json-rpc":
            return self.error
        if form == "problem":
            return self.problem
        return f"{self.title}. {self.text}\n".encode() if form == "text" else self.page

    def answer(self, form: Form = "page") -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Headers and body."""
        body = self._body(form)
        headers = security_headers() | {
            "Content-Type": _KINDS[form],
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Connection": "close",
        }
        headers |= {"HX-Reswap": "none"} if form == "text" else {}
        return [(name.encode(), value.encode()) for name, value in (headers | dict(self.headers)).items()], body

    def response(self, form: Form = "page") -> bytes:
        """The whole HTTP/1.1 response."""
        headers, body = self.answer(form)
        head = f"HTTP/1.1 {int(self.status)} {self.status.phrase}\r\n".encode()
        return head + b"".join(name + b": " + value + b"\r\n" for name, value in headers) + b"\r\n" + body


@cache
def _page(status: int, title: str, text: str) -> bytes:
    return render_to_string("mcpadmin/refused.html", {"status": status, "title": title, "text": text}).encode()


def too_large(limit: str, advice: str = "") -> Refusal:
    words = f"The request was discarded. {limits.stated(limit)}"
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Request too large", f"{words} {advice}".strip())


def too_slow() -> Refusal:
    words = f"The request did not arrive in time, so nothing was done. {limits.stated('request_seconds')} Try again."
    return Refusal(HTTPStatus.REQUEST_TIMEOUT, "Request took too long", words)


def head_too_large() -> Refusal:
    words = f"The address or the cookies are too long. {limits.stated('request_head_bytes', 'request_headers')} Delete this site's cookies, then try again."
    return Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "Request headers too large", words)


def too_many_connections(limit: str) -> Refusal:
    words = f"All connections are in use. {limits.stated(limit)} Try again in a moment."
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections", words, {"Retry-After": "5"})


def malformed() -> Refusal:
    words = "This was not a valid HTTP request. If a proxy is in front of mcpadmin, check its log."
    return Refusal(HTTPStatus.BAD_REQUEST, "Bad request", words)


def sign_in_first() -> Refusal:
    return Refusal(HTTPStatus.UNAUTHORIZED, "Signed out", "Sign in, then send this again.")


def token_refused(path: str) -> Refusal:
    """The same answer as from the endpoint for agents and the HTTP API: OAuth clients then refresh their token."""
    slug = path.removeprefix(PREFIX).strip("/") if path.startswith(PREFIX) else None
    scopes = " ".join(metadata.DEFAULT_SCOPES)
    challenge = 'Bearer error="invalid_token"' if slug is None else metadata.challenge(slug, "invalid_token", scopes)
    words = "This token is unknown, expired or revoked."
    return Refusal(HTTPStatus.UNAUTHORIZED, "Unauthorized", words, {"WWW-Authenticate": challenge})


def not_checked() -> Refusal:
    words = "Your sign-in could not be checked because the database did not respond. Nothing was done. Try again."
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "Try again in a moment", words, {"Retry-After": "5"})


def failed(status: int) -> Refusal:
    words = "The request could not be handled. Try again. If it happens again, ask an administrator to check the log."
    return Refusal(HTTPStatus(status), "Bad request" if status < 500 else "Something went wrong", words)
