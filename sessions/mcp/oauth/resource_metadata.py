"""Protected resource metadata (RFC 9728): which authorization servers issue tokens, and for which resource."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..core.errors import AuthorizationError, Fault, TransportError
from .exchange import Exchange, HttpResponse, get
from .scopes import scopes_of
from .urls import base, covers, demand_secure, http_twin, split

_WELL_KNOWN = "/.well-known/oauth-protected-resource"
#: further hints or authorization servers are ignored
_MOST = 8


@dataclass(frozen=True, slots=True)
class ResourceMetadata:
    """`resource` must be repeated byte for byte in token requests."""

    resource: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    #: the server accepts tokens that are bound to a key (RFC 9449)
    dpop: bool = False


def find(server_url: str, hints: Iterable[str] = ()) -> Exchange[ResourceMetadata | None]:
    """None: the server has none, as before 2025-06-18. `hints`: `resource_metadata` values of its challenge."""
    for url in candidates(server_url, hints):
        response = yield get(demand_secure(url, "The address of the server's metadata"))
        check_transient(response, "server's metadata")
        document = response.json() if response.status == 200 else None
        if document is not None and isinstance(document.get("resource"), str):
            return _read(document, server_url)
    return None


def candidates(server_url: str, hints: Iterable[str]) -> list[str]:
    """URLs in the order to try them (MCP *Protected Resource Metadata Discovery Requirements*)."""
    root, path = base(server_url) + _WELL_KNOWN, urlsplit(http_twin(server_url)).path.rstrip("/")
    absolute = [hint for hint in hints if split(hint) is not None][:_MOST]
    return list(dict.fromkeys([*absolute, root + path, root]))


def _read(document: dict[str, object], server_url: str) -> ResourceMetadata:
    resource, issuers = str(document["resource"]), document.get("authorization_servers")
    if not covers(resource, http_twin(server_url)):
        raise AuthorizationError(
            f"The server's metadata is for another address ({resource[:200]!r}), so no token was requested."
        )
    named = [one for one in issuers if isinstance(one, str)] if isinstance(issuers, list) else []
    if not named:
        raise AuthorizationError("The server's metadata does not name an authorization server.")
    algorithms = document.get("dpop_signing_alg_values_supported")
    return ResourceMetadata(
        resource,
        tuple(named[:_MOST]),
        scopes_of(document.get("scopes_supported")),
        document.get("dpop_bound_access_tokens_required") is True
        or (isinstance(algorithms, list) and "ES256" in algorithms),
    )


def check_transient(response: HttpResponse, what: str) -> None:
    """TransportError for a temporary failure, which says nothing about what the server offers. Not an HttpError,
    which would be taken for an answer from the MCP server."""
    if response.status >= 500 or response.status == 429:
        detail = f"The {what} cannot be read right now (HTTP {response.status})."
        raise TransportError(Fault.HTTP_STATUS, detail, may_have_run=False)
