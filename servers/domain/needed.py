"""Credentials of the vault where they are not brought along, in an export or a copy: what is known of them, and no value."""

from collections.abc import Iterable

from servers.domain.form_data import ValueInput
from servers.enums import CredentialKind, IdentityKind, ValueKind
from servers.models import Credential, Server


def used_by(server: Server) -> list[Credential]:
    """What the shared identity speaks with, where it may still be sent."""
    rows = Credential.objects.filter(
        uses__identity__server=server, uses__identity__kind=IdentityKind.SHARED, uses__blanked_at=None
    )
    return list(rows.distinct())


def as_values(credentials: Iterable[Credential]) -> list[ValueInput]:
    """Those that a row of a server can stand for, as rows whose value is needed."""
    return [value for credential in credentials if (value := _as_value(credential)) is not None]


def _as_value(credential: Credential) -> ValueInput | None:
    """A grant, a service account or a certificate is no header or variable."""
    names = {
        CredentialKind.BEARER: (ValueKind.HEADER, "Authorization"),
        CredentialKind.BASIC: (ValueKind.HEADER, "Authorization"),
        CredentialKind.HEADER: (ValueKind.HEADER, credential.details.get("header", "")),
        CredentialKind.ENVIRONMENT: (ValueKind.ENVIRONMENT, credential.details.get("variable", "")),
    }
    kind, name = names.get(CredentialKind(credential.kind), (ValueKind.HEADER, ""))
    return ValueInput(kind, name, secret=True, value=None, needed=True) if name else None


def left_out(server: Server, copy: Server) -> list[str]:
    """Names of what `server` speaks with and its copy does not."""
    kept = {credential.pk for credential in used_by(copy)}
    return [credential.name for credential in used_by(server) if credential.pk not in kept]
