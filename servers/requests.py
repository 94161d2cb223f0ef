"""A request as views receive it, the client address used for rate limits, and the page to return to."""

from ipaddress import IPv4Address, IPv6Address, ip_address

from django.conf import settings
from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.middleware import HtmxDetails


class WebRequest(HttpRequest):
    """A request with what middleware adds: ours and that of django-htmx."""

    htmx: HtmxDetails
    request_id: str
    client_ip: str
    received_ms: int  # since the epoch


def return_to(request: HttpRequest, page: str) -> str:
    """The URL in the form field or query parameter `back`, if it is under `page`; otherwise `page`."""
    address = request.POST.get("back") or request.GET.get("back", "")
    return address if url_has_allowed_host_and_scheme(address, None) and address.startswith(page) else page


def client_address(peer: str, forwarded_for: str) -> str:
    """The address seen by the outermost of our own proxies; without proxies, the peer's.

    X-Forwarded-For grows to the right: entry -n was written by the n-th proxy from us; what is left of it is untrusted.
    """
    count = settings.TRUSTED_PROXIES
    hops = [hop.strip() for hop in forwarded_for.split(",") if hop.strip()] if count > 0 else []
    return _as_ipv4(_without_port(hops[-count]) if 0 < count <= len(hops) else peer)


def _as_ipv4(address: str) -> str:
    """Unmap an IPv4 address that a dual-stack socket reports as ::ffff:192.0.2.1. Limits count a /64 of IPv6 as one
    address, which all IPv4 visitors would share."""
    parsed = _parsed(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return str(mapped) if mapped is not None else address


def counted_address(host: str) -> str:
    """The address that counts as one visitor: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = _parsed(_as_ipv4(host))
    if isinstance(parsed, IPv6Address):
        return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"
    return host if parsed is None else str(parsed)


def _parsed(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _without_port(hop: str) -> str:
    """Some proxies add the port, such as Azure's. With it, each connection would count as a different address."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    address, _, port = hop.rpartition(":")
    return address if port.isdecimal() and address and ":" not in address else hop
