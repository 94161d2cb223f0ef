"""A request as views get it, for annotations."""

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails


class WebRequest(HttpRequest):
    """What middleware adds: ours and that of django-htmx."""

    htmx: HtmxDetails
    request_id: str
    client_ip: str
    received_ms: int  # since the epoch
