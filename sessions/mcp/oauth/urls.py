"""Rules for addresses that servers name: which ones may be used, and which ones belong together."""

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from ..core.errors import AuthorizationError

_PORTS = {"http": 80, "https": 443}
_TWINS = {"ws": "http", "wss": "https"}


def split(url: str) -> SplitResult | None:
    """The parts of an absolute http or https URL with a host; None for anything else."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_local(url: str) -> bool:
    """Whether the address names this machine itself."""
    parts = split(http_twin(url))
    return parts is not None and is_loopback(parts.hostname or "")


def is_secure(url: str) -> bool:
    """https, or http to a loopback address; without user information."""
    parts = split(url)
    if parts is None or parts.username is not None or parts.password is not None:
        return False
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def demand_secure(url: str, what: str) -> str:
    if not is_secure(url):
        raise AuthorizationError(f"{what} is not an https address, so it is not used: {url[:200]!r}.")
    return url


def demand_elsewhere(url: str, what: str) -> None:
    """For URLs that a server on another machine names: services on this machine may trust any local request."""
    if is_local(url):
        raise AuthorizationError(f"{what} is on this machine and the server is not, so it is not used: {url[:200]!r}.")


def demand_endpoint(url: object, what: str) -> str:
    """A checked endpoint address from an authorization server's metadata."""
    if not isinstance(url, str) or not url:
        raise AuthorizationError(f"The authorization server does not say where its {what} is.")
    if "#" in url:
        raise AuthorizationError(f"The address of the {what} must not contain a fragment.")
    return demand_secure(url, f"The address of the {what}")


def http_twin(url: str) -> str:
    """A WebSocket address as the http or https address of its handshake."""
    scheme, separator, rest = url.strip().partition("://")
    return _TWINS.get(scheme.lower(), scheme.lower()) + separator + rest


def origin(url: str) -> str:
    """Scheme, host and port in comparable form; empty for anything that is not a URL."""
    parts = split(http_twin(url))
    if parts is None:
        return ""
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}:{parts.port or _PORTS[parts.scheme]}"


def base(url: str) -> str:
    """Scheme, host and port to build addresses on; the port only if it is not the scheme's default."""
    scheme, _, port = origin(url).rpartition(":")
    return scheme if int(port) == _PORTS[scheme.partition(":")[0]] else f"{scheme}:{port}"


def canonical(url: str) -> str:
    """The server's identifier if it names none (MCP *Canonical Server URI*)."""
    parts = urlsplit(http_twin(url))
    query = f"?{parts.query}" if parts.query else ""
    return base(url) + parts.path.rstrip("/") + query


def covers(resource: str, server_url: str) -> bool:
    """Whether a token for `resource` is meant for this server: same origin, and its path is the same or a parent."""
    parts = split(resource)
    if parts is None or "#" in resource or origin(resource) != origin(server_url):
        return False
    inner, outer = _segments(urlsplit(server_url).path), _segments(parts.path)
    return inner[: len(outer)] == outer


def _segments(path: str) -> list[str]:
    return path.rstrip("/").split("/")
