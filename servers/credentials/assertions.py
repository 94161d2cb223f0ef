"""Credentials based on a token signed by a third party: who checks them, and where the worker finds the token.

MCP extensions *Workload Identity Federation* (SEP-1933): the platform's token is the assertion (RFC 7523). *Enterprise-
Managed Authorization* (SEP-990): the identity provider makes one of a person's ID token (RFC 8693, ID-JAG). Such tokens
live for minutes and are renewed from outside, so a reference is stored and never the token.
"""

from django.core.exceptions import ValidationError

from servers.credentials.service_account import check_address, check_client
from servers.validators import is_reference


def check_workload(client: str, issuer: str, scopes: str, token: str) -> None:
    """Raises ValidationError with messages by part, as do the checks below."""
    check_client(client, issuer, scopes)
    if not is_reference(token):
        words = "Enter a single reference, such as ${file:/run/secrets/token} or ${MCP_TOKEN}."
        raise ValidationError({"token": ValidationError(words, code="reference")})


def check_enterprise(client: str, issuer: str, scopes: str, token: str, provider: str, provider_client: str) -> None:
    check_workload(client, issuer, scopes, token)
    check_address("provider", provider)
    if not provider_client:
        words = "Enter mcpadmin's client ID at the identity provider."
        raise ValidationError({"provider_client": ValidationError(words, code="required")})
