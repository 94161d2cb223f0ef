"""Where the endpoints for agents are. The address of an endpoint is also its identifier as a protected resource (RFC
8707, RFC 9728), so that it is written in one way only."""

from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

PREFIX: Final = "/mcp/"
#: of the HTTP API, which the same tokens open
API_PREFIX: Final = "/api/"


def address_of(slug: str) -> str:
    return f"{settings.PUBLIC_URL}{PREFIX}{slug}"


def slug_of(resource: str) -> str:
    """Of a resource as a client names it: case of scheme and host and a slash at the end do not matter. "" if it is no
    endpoint here."""
    try:
        parts = urlsplit(resource)
    except ValueError:
        return ""
    if "\0" in resource:
        return ""
    public = urlsplit(settings.PUBLIC_URL)
    if (parts.scheme.lower(), parts.netloc.lower()) != (public.scheme, public.netloc.lower()) or parts.query:
        return ""
    path = parts.path.rstrip("/")
    return path.removeprefix(PREFIX) if path.startswith(PREFIX) and "/" not in path.removeprefix(PREFIX) else ""
