"""Pages for requests that fail before or below their view: too large for Django, a method that the address does not
accept, a null character in the address, a key ring that cannot decrypt what is stored, or a server that is deleted or
replaced meanwhile. Also the page for "not found"."""

from collections.abc import Callable
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ObjectDoesNotExist, RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.defaults import bad_request as other
from django.views.defaults import page_not_found as plain_page

from servers import access, limits
from servers.keyring import SealError
from servers.models import Bundle, Server

log = structlog.get_logger("mcpadmin.request")
#: how the message of `get_object_or_404` ends
_OF_A_QUERY = "matches the given query."
_LIMITS: dict[type[Exception], str] = {
    RequestDataTooBig: "body_arguments_bytes",
    TooManyFieldsSent: "form_fields",
    TooManyFilesSent: "form_files",
}


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    name = _LIMITS.get(type(exception))
    if name is None:
        return other(request, exception)
    context = {"status": 413, "title": "Request too large", "text": f"The request was discarded. {limits.stated(name)}"}
    return render(request, "mcpadmin/refused.html", context, status=413)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Shows the sentence of the view that found nothing. Other messages are Django's, which name models and fields."""
    words = exception.args[0] if exception.args else ""
    from_view = isinstance(words, str) and words.endswith(".") and not words.endswith(_OF_A_QUERY)
    return plain_page(request, Http404(words if from_view else ""))


class ExceptionMiddleware:
    """Passes requests on, sync or async. Its subclasses handle exceptions of views."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        return self.get_response(request)


class KeyRingMiddleware(ExceptionMiddleware):
    """A page whose content cannot be decrypted says which key is missing, unless its view says it in place."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, SealError):
            return None
        log.error("key_ring.cannot_open", path=request.path, problem=str(exception))
        context = {"status": 503, "title": "Cannot decrypt this page's content", "text": str(exception)}
        return render(request, "mcpadmin/refused.html", context, status=503)


class DeletedMeanwhile(ExceptionMiddleware):
    """Someone deletes the server or bundle of an address while the request runs: it is not found, as it would be a
    moment later. Anything else that a view fails to find stays an error."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, ObjectDoesNotExist | IntegrityError):
            return None
        if not isinstance(exception, Server.DoesNotExist) and not _names_nothing(request):
            return None
        log.info("request.deleted_meanwhile", path=request.path, problem=str(exception))
        return page_not_found(request, Http404())


class ReplacedMeanwhile(ExceptionMiddleware):
    """A form was opened for a server or bundle that is gone, and another one has its short name. A page of its own: what was typed is
    one step back. Views that can show it again do that themselves."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, access.Replaced):
            return None
        if "HX-Request" in request.headers:
            return HttpResponse(str(exception), status=409, content_type="text/plain")
        if request.accepts("application/json") and not request.accepts("text/html"):
            return JsonResponse({"message": str(exception)}, status=409)
        context = {"status": 409, "title": "This page is out of date", "text": str(exception)}
        return render(request, "mcpadmin/refused.html", context, status=409)


def _names_nothing(request: HttpRequest) -> bool:
    """Whether the short name in the address no longer belongs to a server or bundle."""
    slug = request.resolver_match.kwargs.get("slug") if request.resolver_match is not None else None
    if slug is None or Server.objects.filter(slug=slug).exists():
        return False
    return not Bundle.objects.filter(slug=slug, deleted_at=None).exists()


class NoNullCharacters:
    """PostgreSQL stores no null character, and refuses to compare with one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        query = request.META.get("QUERY_STRING", "")
        if "%00" not in query and "\0" not in query and "\0" not in request.path_info:
            return self.get_response(request)
        text = "It contains a null character, which is not allowed in names and searches."
        if not _opened(request):
            return HttpResponse(f"This address is not valid. {text}", status=400, content_type="text/plain")
        context = {"status": 400, "title": "This address is not valid", "text": text}
        return render(request, "mcpadmin/refused.html", context, status=400)


class FormsOnly:
    """A person who opens an address that only accepts forms is told so. Programs get only the status."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if isinstance(response, HttpResponseNotAllowed) and not response.content and _opened(request):
            return _explained(request, response)
        return response


def _explained(request: HttpRequest, response: HttpResponseNotAllowed) -> HttpResponse:
    context = {
        "status": 405,
        "title": "Not a page",
        "text": "This address accepts only form submissions. Nothing was changed.",
    }
    page = render(request, "mcpadmin/refused.html", context, status=405)
    page.headers["Allow"] = response.headers["Allow"]
    return page


def _opened(request: HttpRequest) -> bool:
    """Whether a person opened it in a browser: scripts and agents accept other types, or name none."""
    scripted = "HX-Request" in request.headers or "X-Requested-With" in request.headers
    return "text/html" in request.headers.get("Accept", "") and not scripted
