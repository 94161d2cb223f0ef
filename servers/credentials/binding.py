"""Where a credential may go: to the scheme, host and port it was entered for, and over plain http almost nowhere."""

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone

from servers.audit.acts import Trail
from servers.audit.record import ServerRef
from servers.configuration import Registration
from servers.enums import AuditAction, TransportKind
from servers.models import Credential, CredentialUse, Server
from servers.validators import is_encrypted, is_loopback, origin

Destination = tuple[str, str, int]
ANYWHERE: Destination = ("", "", 0)
NOT_ENCRYPTED = "Credentials are never sent over plain http, where anyone on the network path could read them. Use https, or ask an operator to allow this host and port with MCPADMIN_PLAIN_HTTP_HOSTS."


def place_of(source: Server | Registration) -> Destination:
    """What a credential of this server is bound to; no network destination for a local process."""
    return ANYWHERE if source.transport == TransportKind.STDIO else origin(source.url)


def bound_to(credential: Credential) -> Destination:
    return credential.scheme, credential.host, credential.port


def belongs(credential: Credential, source: Server | Registration) -> bool:
    return bound_to(credential) == place_of(source)


def in_words(place: Destination) -> str:
    scheme, host, port = place
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}" if host else "local processes"


def may_carry_credentials(url: str) -> bool:
    """True over TLS, to this machine itself, and to what the operator allowed."""
    if is_encrypted(url) or is_loopback(url):
        return True
    _, host, port = origin(url)
    return f"{host}:{port}" in {entry.strip().lower() for entry in settings.PLAIN_HTTP_HOSTS}


def require_encrypted(url: str) -> None:
    if not may_carry_credentials(url):
        raise ValidationError({"url": ValidationError(NOT_ENCRYPTED, code="not_encrypted")})


def blank_moved(trail: Trail, server: Server) -> list[str]:
    """Runs in the transaction that changed the server: credentials for its old address are not used for the new one."""
    uses = CredentialUse.objects.filter(identity__server=server, blanked_at=None).select_related("credential")
    moved = [use for use in uses if not belongs(use.credential, server)]
    CredentialUse.objects.filter(pk__in=[use.pk for use in moved]).update(blanked_at=timezone.now())
    for use in moved:
        details = {"bound_to": in_words(bound_to(use.credential)), "server_at": in_words(place_of(server))}
        trail.note(AuditAction.CREDENTIAL_BLANK, ServerRef.of(server), use.credential.name, details)
    return [use.credential.name for use in moved]
