"""Where the endpoints for agents are. The address of an endpoint is also its identifier as a protected resource (RFC
8707, RFC 9728), so there is only one spelling of it."""

from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

PREFIX: Final = "/mcp/"
#: for the HTTP API, which accepts the same tokens
API_PREFIX: Final = "/api/"


def address_of(slug: str) -> str:
    return f"{settings.PUBLIC_URL}{PREFIX}{slug}"


def slug_of(resource: str) -> str:
    """The short name in a resource, as a client names it: the case of scheme and host and a trailing slash do not
    matter. "" if it is not an endpoint here."""
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
