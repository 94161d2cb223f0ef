"""Server URLs: which are valid, what a credential is bound to, and how they are shown."""

import re
from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from django.core.exceptions import ValidationError

from servers.enums import TransportKind
from servers.validators.characters import CONTROL
from servers.validators.references import without_references

_SECRET_PARAMETER = re.compile(r"token|secret|passw|api[-_]?key|^key$|^sig$|signature|auth", re.IGNORECASE)
_HTTP_PORTS = {"http": 80, "https": 443}
_WEBSOCKET_PORTS = {"ws": 80, "wss": 443}
_DEFAULT_PORTS = _HTTP_PORTS | _WEBSOCKET_PORTS


def split_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a valid port
    except ValueError as exc:
        # The parser quotes what it cannot parse, which may be a password.
        what = "its port is not a number up to 65535" if "ort" in str(exc)[:5] else "the host is not valid"
        raise ValidationError(f"Invalid URL: {what}.", code="url") from None
    return parts


def validate_url(url: str) -> None:
    """Validate the URL of a server that uses any HTTP transport."""
    parts = _readable(url)
    if parts.scheme.lower() in _WEBSOCKET_PORTS:
        raise ValidationError("For ws:// and wss:// URLs, choose the WebSocket transport.", code="scheme")
    if parts.scheme.lower() not in _HTTP_PORTS:
        raise ValidationError("Start the URL with http:// or https://.", code="scheme")
    _check_parts(url, parts, "https://mcp.example.com/mcp")


def validate_websocket_url(url: str) -> None:
    parts = _readable(url)
    if parts.scheme.lower() not in _WEBSOCKET_PORTS:
        raise ValidationError("Start the URL with ws:// or wss://.", code="scheme")
    _check_parts(url, parts, "wss://mcp.example.com/ws")


def url_rule(transport: str) -> Callable[[str], None]:
    """The rule for the URL of a server with this transport."""
    return validate_websocket_url if transport == TransportKind.WEBSOCKET else validate_url


def _readable(url: str) -> SplitResult:
    if CONTROL.search(url) or " " in url or "\t" in url:
        raise ValidationError("A URL cannot contain spaces or line breaks. Write a space as %20.", code="url")
    parts = split_url(url)
    scheme, mark, _ = url.partition("://")
    if "${" in (scheme if mark else url[:2]) + parts.netloc:
        message = "References are allowed only in the path and query. Write out scheme, host and port."
        raise ValidationError(message, code="reference")
    return parts


def _check_parts(url: str, parts: SplitResult, example: str) -> None:
    if not parts.hostname:
        raise ValidationError(f"The URL has no host. Example: {example}.", code="host")
    if parts.username is not None or parts.password is not None:
        message = "Move the username and password from the URL to a header: headers are stored encrypted, URLs are not."
        raise ValidationError(message, code="userinfo")
    if parts.fragment or url.endswith("#"):
        raise ValidationError("Remove the part after #: it is never sent to a server.", code="fragment")


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what a credential is bound to (RFC 6454)."""
    parts = split_url(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").rstrip("."), parts.port or _DEFAULT_PORTS.get(scheme, 0)


def is_encrypted(url: str) -> bool:
    return split_url(url).scheme.lower() in ("https", "wss")


def is_loopback(url: str) -> bool:
    """Whether the URL names this machine itself; what other names resolve to is checked when a socket opens."""
    host = (split_url(url).hostname or "").rstrip(".")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def masked_url(url: str) -> str:
    """`url` without username, password and the values of parameters that look like secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    host = parts.netloc.rpartition("@")[2]
    query = "&".join(_masked_parameter(item) for item in parts.query.split("&")) if parts.query else ""
    return parts._replace(netloc=f"…@{host}" if "@" in parts.netloc else host, query=query).geturl()


def is_secret_parameter(item: str) -> bool:
    """Whether `item`, a query parameter such as `api_key=…`, contains a credential according to its name."""
    name, _, value = item.partition("=")
    return bool(without_references(value) and _SECRET_PARAMETER.search(name))


def _masked_parameter(item: str) -> str:
    return f"{item.partition('=')[0]}=…" if is_secret_parameter(item) else item
