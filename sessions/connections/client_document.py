"""How authorization servers identify this installation: its redirect URI and its client ID metadata document."""

from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.urls import reverse

from sessions.mcp.oauth.registration import metadata_document

#: suffixes of host names that resolve only on a private network
_PRIVATE: Final = (".localhost", ".local", ".lan", ".internal", ".intranet", ".corp", ".home", ".home.arpa")


def callback() -> str:
    return f"{settings.PUBLIC_URL}{reverse('sign_in_callback')}"


def address() -> str:
    """Empty without a public https URL: authorization servers fetch the document over https."""
    return f"{settings.PUBLIC_URL}{reverse('oauth_client')}" if settings.PUBLIC_URL.startswith("https:") else ""


def is_fetched() -> bool:
    """Whether an authorization server on the internet can fetch the document. One on our own network may anyway."""
    host = (urlsplit(settings.PUBLIC_URL).hostname or "").rstrip(".")
    try:
        return ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith(_PRIVATE)


def name() -> str:
    return "mcpadmin" if settings.INSTANCE_NAME == "mcpadmin" else f"mcpadmin ({settings.INSTANCE_NAME})"


def document() -> dict[str, Any]:
    return metadata_document(f"{settings.PUBLIC_URL}{reverse('oauth_client')}", name(), callback())
