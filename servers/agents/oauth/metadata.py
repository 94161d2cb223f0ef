"""The discovery documents for clients: RFC 9728 for each endpoint, RFC 8414 for this authorization server."""

from typing import Any, Final
from urllib.parse import quote

from django.conf import settings
from django.urls import reverse

from servers.agents.addresses import PREFIX, address_of
from servers.enums import AgentScope

#: RFC 9728 section 3.1: inserted before the path of the resource
RESOURCE_PATH: Final = "/.well-known/oauth-protected-resource"
SCOPES: Final = [scope.value for scope in AgentScope]
#: the scopes for a client that names none
DEFAULT_SCOPES: Final = [
    AgentScope.LIST.value,
    AgentScope.READ.value,
    AgentScope.CALL.value,
    AgentScope.INBOX.value,
]


def issuer() -> str:
    return str(settings.PUBLIC_URL)


def protected_resource(slug: str) -> dict[str, Any]:
    """The same for every short name, so that it does not reveal which servers exist. Clients request the scopes that it
    lists, so these are the usual ones, not all (MCP 2025-11-25 *Scope Selection Strategy*)."""
    return {
        "resource": address_of(slug),
        "authorization_servers": [issuer()],
        "scopes_supported": DEFAULT_SCOPES,
        "bearer_methods_supported": ["header"],
        "resource_name": f"{slug} through {settings.INSTANCE_NAME or 'mcpadmin'}",
    }


def authorization_server(*, registration: bool, documents: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "issuer": issuer(),
        "authorization_endpoint": f"{issuer()}{reverse('oauth:authorize')}",
        "token_endpoint": f"{issuer()}{reverse('oauth:token')}",
        "revocation_endpoint": f"{issuer()}{reverse('oauth:revoke')}",
        "scopes_supported": SCOPES,
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
        "revocation_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }
    if documents:
        found["client_id_metadata_document_supported"] = True
    if registration:
        found["registration_endpoint"] = f"{issuer()}{reverse('oauth:register')}"
    return found


def challenge(slug: str, error: str = "", scopes: str = "") -> str:
    """The value of WWW-Authenticate (RFC 6750 section 3, RFC 9728 section 5.1). `slug` may be any text from a path."""
    parts = ['Bearer realm="mcpadmin"']
    if error:
        parts.append(f'error="{error}"')
    if scopes:
        parts.append(f'scope="{scopes}"')
    parts.append(f'resource_metadata="{issuer()}{RESOURCE_PATH}{PREFIX}{quote(slug, safe="")}"')
    return ", ".join(parts)
