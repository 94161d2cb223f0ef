"""How authorization servers identify this installation: its redirect URI and its client ID metadata document."""

from typing import Any

from django.conf import settings
from django.urls import reverse

from sessions.mcp.oauth.registration import metadata_document


def callback() -> str:
    return f"{settings.PUBLIC_URL}{reverse('sign_in_callback')}"


def address() -> str:
    """Empty without a public https URL: authorization servers fetch the document over https."""
    return f"{settings.PUBLIC_URL}{reverse('oauth_client')}" if settings.PUBLIC_URL.startswith("https:") else ""


def name() -> str:
    return "mcpadmin" if settings.INSTANCE_NAME == "mcpadmin" else f"mcpadmin ({settings.INSTANCE_NAME})"


def document() -> dict[str, Any]:
    return metadata_document(f"{settings.PUBLIC_URL}{reverse('oauth_client')}", name(), callback())
