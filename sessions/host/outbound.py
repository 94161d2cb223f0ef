"""The operator's rules for outbound connections."""

from django.conf import settings

from sessions.mcp.transports.egress import Allow, OutboundPolicy
from sessions.mcp.transports.proxy import Proxy


def egress_policy() -> OutboundPolicy:
    allow = tuple(map(Allow.parsed, settings.ALLOWED_NETWORKS))
    proxy = Proxy.parsed(settings.OUTBOUND_PROXY, settings.OUTBOUND_PROXY_EXCEPT)
    return OutboundPolicy(allow_loopback=settings.ALLOW_LOOPBACK, allow=allow, proxy=proxy)
