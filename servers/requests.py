"""A request as views get it, the address that it came from, and the page to which its answer returns."""

from django.conf import settings
from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.middleware import HtmxDetails


class WebRequest(HttpRequest):
    """What middleware adds: ours and that of django-htmx."""

    htmx: HtmxDetails
    request_id: str
    client_ip: str
    received_ms: int  # since the epoch


def return_to(request: HttpRequest, page: str) -> str:
    """The address in the form's field `back`, or the query's, if it is one of `page`; otherwise `page`."""
    address = request.POST.get("back") or request.GET.get("back", "")
    return address if url_has_allowed_host_and_scheme(address, None) and address.startswith(page) else page


def client_address(peer: str, forwarded_for: str) -> str:
    """The address that the outermost of our own proxies saw; without proxies, the peer's.

    X-Forwarded-For grows to the right: entry -n was written by the n-th proxy from us, all left of it by strangers.
    """
    count = settings.TRUSTED_PROXIES
    if count < 1:
        return peer
    hops = [hop.strip() for hop in forwarded_for.split(",") if hop.strip()]
    return _without_port(hops[-count]) if len(hops) >= count else peer


def _without_port(hop: str) -> str:
    """Some proxies write the port too, such as Azure's. With it, each connection would come from an address of its own."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    address, _, port = hop.rpartition(":")
    return address if port.isdecimal() and address and ":" not in address else hop
