"""The page of a request that Django itself refuses because of its size."""

from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.defaults import bad_request as other

from servers import limits

_LIMITS: dict[type[Exception], str] = {
    RequestDataTooBig: "body_arguments_bytes",
    TooManyFieldsSent: "form_fields",
    TooManyFilesSent: "form_files",
}


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    name = _LIMITS.get(type(exception))
    if name is None:
        return other(request, exception)
    context = {"status": 413, "title": "Request too large", "text": f"It was discarded. {limits.stated(name)}"}
    return render(request, "mcpadmin/refused.html", context, status=413)
