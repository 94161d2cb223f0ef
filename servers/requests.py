"""Requests as views get them, and what stands in them as text."""

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails


class WebRequest(HttpRequest):
    """What middleware adds: ours and that of django-htmx."""

    htmx: HtmxDetails
    request_id: str
    client_ip: str


def whole_number(text: str) -> int | None:
    """ASCII digits only, and at most what a 64-bit column holds. None for everything else: `int` would also take signs,
    blanks, underscores and the digits of other scripts, and fails on a few thousand digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
