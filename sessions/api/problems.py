"""Errors as problem details (RFC 9457): the same format for every refusal, at any step."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import structlog
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja import NinjaAPI
from ninja import errors as ninja

from servers.audit.writer import AuditUnavailable, WriterBusy
from servers.crypto import SealError
from sessions.agents.endpoints import NoEndpoint
from sessions.explorer.language import QueryError
from sessions.mcp.core import jsonrpc
from sessions.mcp.server.refusals import FORBIDDEN, Refusal

MEDIA_TYPE: Final = "application/problem+json"
#: how refusals of the agent endpoint are named here
_KINDS: Final = {
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    409: "conflict",
    429: "too-many-requests",
    503: "unavailable",
}
_BUSY: Final = {"Retry-After": "2"}
log = structlog.get_logger(__name__)


class Problem(Exception):
    """`kind`: the end of the URN that agents compare. `more`: further members of the document."""

    def __init__(self, status: int, kind: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.more = status, kind, detail, more


def not_found(what: str) -> Problem:
    return Problem(404, "not-found", f"This {what} does not exist, or this token has no access to it.")


def answer(problem: Problem, headers: Mapping[str, str] | None = None) -> HttpResponse:
    body = {
        "type": f"urn:mcpadmin:problem:{problem.kind}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        **problem.more,
    }
    every = {"Cache-Control": "no-store", **(headers or {})}
    return JsonResponse(body, status=problem.status, content_type=MEDIA_TYPE, headers=every)


def method_not_allowed(allowed: str) -> HttpResponse:
    """`allowed`: as listed in the Allow header."""
    return answer(Problem(405, "invalid", f"This address accepts only {allowed}."), {"Allow": allowed})


def register(api: NinjaAPI) -> None:
    """Register the handlers: exceptions raised in operations become responses here and nowhere else."""
    handlers: dict[type[Exception], Callable[[HttpRequest, Any], HttpResponse]] = {
        Problem: lambda request, raised: answer(raised),
        Refusal: _refused,
        NoEndpoint: lambda request, raised: answer(not_found("server")),
        PermissionDenied: lambda request, raised: answer(Problem(403, "forbidden", str(raised))),
        Http404: lambda request, raised: answer(Problem(404, "not-found", "There is nothing at this address.")),
        QueryError: lambda request, raised: answer(
            Problem(422, "invalid-query", raised.message, start=raised.start, end=raised.end)
        ),
        ValidationError: lambda request, raised: answer(Problem(422, "invalid", " ".join(raised.messages))),
        ninja.ValidationError: _invalid,
        ninja.HttpError: lambda request, raised: answer(Problem(raised.status_code, "invalid", str(raised))),
        AuditUnavailable: _unavailable,
        WriterBusy: _unavailable,
        OperationalError: _without_database,
        InterfaceError: _without_database,
        SealError: _sealed,
    }
    for kind, handler in handlers.items():
        api.add_exception_handler(kind, handler)


def _refused(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """A refusal of the agent endpoint. Over MCP, some of these have the status 200."""
    status = refusal.status
    if status < 400:  # an internal error there comes from the server behind it
        status = 503 if refusal.code == jsonrpc.INTERNAL_ERROR else 422
    data = refusal.data if isinstance(refusal.data, dict) else {}
    kind = _KINDS.get(status, "invalid")
    if refusal.code == FORBIDDEN and ("requiredScope" in data or data.get("reason") == "policy"):
        kind = "insufficient-scope"
    headers = {name: value for name, value in refusal.headers.items() if name != "Connection"}
    return answer(Problem(status, kind, refusal.message, **data), headers)


def _invalid(request: HttpRequest, raised: ninja.ValidationError) -> HttpResponse:
    """Never repeats what was sent: it may contain secrets."""
    errors = [{"at": "/".join(map(str, one["loc"])), "message": one["msg"]} for one in raised.errors]
    return answer(Problem(422, "invalid", "The request does not match the OpenAPI document.", errors=errors))


def _unavailable(request: HttpRequest, raised: Exception) -> HttpResponse:
    """The message says whether anything was done."""
    return answer(Problem(503, "unavailable", str(raised)), _BUSY)


def _without_database(request: HttpRequest, raised: Exception) -> HttpResponse:
    log.warning("api.database_away", path=request.path, problem=str(raised))
    words = "The database is not responding. Try again in a moment. A call that was started continues: repeat the request with its Idempotency-Key to get it."
    return answer(Problem(503, "unavailable", words), _BUSY)


def _sealed(request: HttpRequest, raised: Exception) -> HttpResponse:
    log.error("api.key_ring_cannot_open", path=request.path, problem=str(raised))
    return answer(Problem(503, "unavailable", str(raised)), _BUSY)
