"""Credentials that an export or a copy of a server does not include: their descriptions, without their values."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from servers.configuration import ValueInput
from servers.enums import CredentialKind, IdentityKind, ValueKind
from servers.models import Credential, Server


@dataclass(frozen=True)
class Needed:
    """The public facts of a credential that is neither a header nor a variable."""

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
    """The credentials of the shared identity that may still be sent."""
    rows = Credential.objects.filter(
        uses__identity__server=server, uses__identity__kind=IdentityKind.SHARED, uses__blanked_at=None
    )
    return list(rows.distinct())


def as_values(credentials: Iterable[Credential], beside: Iterable[ValueInput]) -> list[ValueInput]:
    """The credentials that a header or variable of a server can replace, as rows whose value is needed. Existing rows
    (`beside`) are omitted."""
    taken = {value.key for value in beside}
    found = {value.key: value for credential in credentials if (value := _as_value(credential)) is not None}
    return [value for key, value in found.items() if key not in taken]


def _as_value(credential: Credential) -> ValueInput | None:
    """None for a grant, a certificate or a credential that fetches tokens: these are neither headers nor variables."""
    names = {
        CredentialKind.BEARER: (ValueKind.HEADER, "Authorization"),
        CredentialKind.BASIC: (ValueKind.HEADER, "Authorization"),
        CredentialKind.HEADER: (ValueKind.HEADER, credential.details.get("header", "")),
        CredentialKind.ENVIRONMENT: (ValueKind.ENVIRONMENT, credential.details.get("variable", "")),
    }
    kind, name = names.get(CredentialKind(credential.kind), (ValueKind.HEADER, ""))
    return ValueInput(kind, name, secret=True, value=None, needed=True) if name else None


def others(credentials: Iterable[Credential]) -> list[Needed]:
    """The credentials that no row can replace. The client of a grant is omitted: another installation registers its
    own."""
    return [_described(credential) for credential in credentials if _as_value(credential) is None]


def _described(credential: Credential) -> Needed:
    details, kind = credential.details, CredentialKind(credential.kind)
    client = details.get("client", "") if kind.fetches_tokens else ""
    return Needed(kind, credential.issuer or details.get("issuer", ""), client, details.get("scopes", ""))


def left_out(server: Server, copy: Server) -> list[str]:
    """Names of the credentials that `server` uses and its copy does not."""
    kept = {credential.pk for credential in used_by(copy)}
    return [credential.name for credential in used_by(server) if credential.pk not in kept]
