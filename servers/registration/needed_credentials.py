"""Credentials of the vault where they are not brought along, in an export or a copy: what is known of them, and no value."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from servers.configuration import ValueInput
from servers.enums import CredentialKind, IdentityKind, ValueKind
from servers.models import Credential, Server


@dataclass(frozen=True)
class Needed:
    """A credential that is no header or variable, by what is open of it."""

    kind: CredentialKind
    issuer: str = ""
    client: str = ""
    scopes: str = ""

    @property
    def words(self) -> str:
        name = f"{self.kind.label} {self.client}".strip()
        at = f" at {self.issuer}" if self.issuer else ""
        return f"{name}{at}{f', scopes {self.scopes}' if self.scopes else ''}"

    def plain(self) -> dict[str, str]:
        return {name: str(value) for name, value in asdict(self).items() if value}


def used_by(server: Server) -> list[Credential]:
    """What the shared identity speaks with, where it may still be sent."""
    rows = Credential.objects.filter(
        uses__identity__server=server, uses__identity__kind=IdentityKind.SHARED, uses__blanked_at=None
    )
    return list(rows.distinct())


def as_values(credentials: Iterable[Credential], beside: Iterable[ValueInput]) -> list[ValueInput]:
    """Those that a row of a server can stand for, as rows whose value is needed; none that stands `beside` already."""
    taken = {value.key for value in beside}
    found = {value.key: value for credential in credentials if (value := _as_value(credential)) is not None}
    return [value for key, value in found.items() if key not in taken]


def _as_value(credential: Credential) -> ValueInput | None:
    """A grant, a certificate or what gets tokens by itself is no header or variable."""
    names = {
        CredentialKind.BEARER: (ValueKind.HEADER, "Authorization"),
        CredentialKind.BASIC: (ValueKind.HEADER, "Authorization"),
        CredentialKind.HEADER: (ValueKind.HEADER, credential.details.get("header", "")),
        CredentialKind.ENVIRONMENT: (ValueKind.ENVIRONMENT, credential.details.get("variable", "")),
    }
    kind, name = names.get(CredentialKind(credential.kind), (ValueKind.HEADER, ""))
    return ValueInput(kind, name, secret=True, value=None, needed=True) if name else None


def others(credentials: Iterable[Credential]) -> list[Needed]:
    """Those that no row can stand for. The client of a grant is left out: another installation registers its own."""
    return [_described(credential) for credential in credentials if _as_value(credential) is None]


def _described(credential: Credential) -> Needed:
    details, kind = credential.details, CredentialKind(credential.kind)
    client = details.get("client", "") if kind.fetches_tokens else ""
    return Needed(kind, credential.issuer or details.get("issuer", ""), client, details.get("scopes", ""))


def left_out(server: Server, copy: Server) -> list[str]:
    """Names of what `server` speaks with and its copy does not."""
    kept = {credential.pk for credential in used_by(copy)}
    return [credential.name for credential in used_by(server) if credential.pk not in kept]
