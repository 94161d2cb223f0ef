"""The values that a session is opened with: environment, headers and client certificate, decrypted and resolved. Only
in workers."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from servers.configuration import NO_VAULT, Registration, Vault
from servers.credentials import kinds, reference_grants, references, variables
from servers.credentials import vault as credentials
from servers.credentials.binding import NOT_ENCRYPTED, belongs, bound_to, in_words, may_carry_credentials
from servers.credentials.kinds import Parts
from servers.credentials.references import OPEN_ADDRESS, ReferenceMissing, ReferenceRefused, has_reference
from servers.enums import CredentialKind, IdentityKind, SignsInAs, TransportKind, ValueKind
from servers.models import Credential, CredentialUse, Identity, Server
from servers.registration.resolved_address import ResolvedAddress, reached
from servers.registration.values import reveal
from servers.secret import Secret


class NotLaunchable(Exception):
    """A person has to change something first. `fault`: a key of sessions.connections.diagnosis."""

    def __init__(self, fault: str, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault


@dataclass(frozen=True)
class Certificate:
    """PEM texts. `ca` is empty if public authorities are trusted; the others are empty if the client presents no
    certificate."""

    certificate: Secret = field(repr=False)
    key: Secret = field(repr=False)
    ca: str = ""


@dataclass(frozen=True)
class LaunchValues:
    """`secrets`: parts of the values that must not be shown either. `used`: keys of the credentials that are sent as
    they are; `used_rows`: keys of the server's own secret rows."""

    environment: dict[str, str | Secret] = field(default_factory=dict)
    headers: dict[str, str | Secret] = field(default_factory=dict)
    certificate: Certificate | None = None
    #: the credential that fetches tokens without a person
    account: Parts | None = None
    #: the key and version of its row
    account_row: tuple[int, int] = (0, 0)
    reached: ResolvedAddress = field(default_factory=ResolvedAddress)
    secrets: tuple[Secret, ...] = ()
    #: parts of the URL and headers, or of the environment, that were read from files, whose content may change
    files: tuple[Secret, ...] = ()
    used: tuple[int, ...] = ()
    used_rows: tuple[int, ...] = ()
    #: keys of the credentials that are sent as tokens of an authorization server
    used_for_tokens: tuple[int, ...] = ()
    #: variables that credentials filled
    filled: tuple[str, ...] = ()

    @property
    def carries_secret(self) -> bool:
        """Whether the values sent with each request, or used to open the connection, contain a secret."""
        shown = self.certificate is not None and bool(self.certificate.certificate)
        return shown or bool(self.secrets) or any(isinstance(v, Secret) for v in self.headers.values())


def launch_values(server: Server, identity: Identity | None = None) -> LaunchValues:
    """Raises crypto.SealError and NotLaunchable, whose texts are safe to show. `identity` None: the shared one.

    Secret values of the registration, and references, belong to the shared identity: no personal session carries them.
    Whatever a row contains, a credential fills only the variables that the registration leaves to it, and a reference
    resolves only if it is granted. This is the last check before anything runs or is sent.
    """
    uses = _uses(server, identity)
    filled = {use.credential.details.get("variable") for use in uses}
    rows = list(server.values.all())
    if identity is not None and identity.kind == IdentityKind.PERSONAL:
        # The value of a reference belongs to the operator, and is for the shared identity only.
        rows = [row for row in rows if not row.secret and not has_reference(row.plain)]
    # where people use their own credentials, the shared session omits variables that only those fill
    optional = server.signs_in_as != SignsInAs.SHARED
    rows = [row for row in rows if not row.is_left_open or not (optional or row.name in filled)]
    given: list[tuple[str, str, Secret | str]] = []
    for row in rows:
        if row.is_left_open:
            words = f"The variable {row.name} has no value. Enter one in the server's Settings, or use a credential for it there."
            raise NotLaunchable("value_needed", words)
        given.append((row.kind, row.name, reveal(row)))
    granted = reference_grants.granted_to_server(server)
    values = _split(server.transport, given, granted)
    values = replace(values, used_rows=tuple(row.pk for row in rows if row.secret))
    return _whole(values, server, uses, granted)


def certificate_of(server: Server, identity: Identity) -> Certificate | None:
    """What this identity presents to the server, or trusts there, for requests beside its session. Raises
    crypto.SealError and NotLaunchable, as above."""
    uses = [use for use in _uses(server, identity) if use.credential.kind == CredentialKind.CERTIFICATE]
    return next((_certificate(_parts(server, use)) for use in uses), None)


def _certificate(parts: Parts) -> Certificate:
    return Certificate(Secret(parts.secret("certificate")), Secret(parts.secret("key")), parts.secret("ca"))


def draft_launch_values(registration: Registration, vault: Vault = NO_VAULT, user: Any = None) -> LaunchValues:
    """The same for an opened draft (see drafts.open_draft). `vault`: the credentials that it uses. `user`: the draft's
    owner."""
    uses = _uses_of_draft(vault)
    filled = {use.credential.details.get("variable") for use in uses}
    optional = registration.signs_in_as != SignsInAs.SHARED
    given = [value for value in registration.values if not value.needed or not (optional or value.name in filled)]
    if missing := [value.name for value in given if value.needed]:
        raise NotLaunchable(
            "value_needed", f"The variable {missing[0]} has no value. Enter one, or select a credential."
        )
    granted = reference_grants.granted_to(user)
    values = _split(registration.transport, [(v.kind, v.name, v.value or "") for v in given], granted)
    return _whole(values, registration, uses, granted)


def _whole(
    values: LaunchValues, source: Server | Registration, uses: Iterable[CredentialUse], granted: Collection[str]
) -> LaunchValues:
    values = _with_credentials(values, source, uses)
    is_stdio = source.transport == TransportKind.STDIO
    if is_stdio:
        _require_command_line(values, source)
    try:
        found = reached(source, granted, values.environment)
    except ReferenceMissing as missing:
        raise _unresolved(missing) from None
    files = (*values.files, *found.files)
    values = replace(values, reached=found, secrets=(*values.secrets, *found.secrets), files=files)
    if values.account is not None and has_reference(source.url):
        raise NotLaunchable("reference_missing", OPEN_ADDRESS)
    if not is_stdio and values.carries_secret and not may_carry_credentials(source.url):
        raise NotLaunchable("not_encrypted", NOT_ENCRYPTED)
    return values


def _require_command_line(values: LaunchValues, source: Server | Registration) -> None:
    """Runs before references are resolved: a variable that only a credential can fill must not be taken for a reference
    if no credential fills it."""
    filled = {name: values.environment[name] for name in values.filled}
    if words := variables.command_refusal(source.arguments, source.working_directory, filled):
        raise NotLaunchable("variable_refused", words)
    referred = {name for text in (*source.arguments, source.working_directory) for name in references.names(text)}
    if missing := sorted(referred & variables.fillable(source) - values.environment.keys()):
        words = (
            f"The command line refers to {missing[0]}, which has no value for this identity. Add a credential for it."
        )
        raise NotLaunchable("value_needed", words)


def _unresolved(missing: ReferenceMissing, place: str = "") -> NotLaunchable:
    fault = "reference_refused" if isinstance(missing, ReferenceRefused) else "reference_missing"
    return NotLaunchable(fault, f"{place}: {missing}" if place else str(missing))


def _split(transport: str, values: list[tuple[str, str, Secret | str]], granted: Collection[str]) -> LaunchValues:
    """Only what the transport uses: a server that used to be stdio does not send its variables as headers."""
    used = ValueKind.ENVIRONMENT if transport == TransportKind.STDIO else ValueKind.HEADER
    given: dict[str, str | Secret] = {}
    secrets: list[Secret] = []
    files: list[Secret] = []
    for kind, name, value in values:
        if kind == used:
            given[name], found = _resolved(name, value, granted)
            secrets += found.secrets
            files += found.files
    if used == ValueKind.ENVIRONMENT:
        return LaunchValues(environment=given, secrets=tuple(secrets), files=tuple(files))
    return LaunchValues(headers=given, secrets=tuple(secrets), files=tuple(files))


def _resolved(name: str, value: Secret | str, granted: Collection[str]) -> tuple[Secret | str, references.Resolved]:
    text = value.reveal() if isinstance(value, Secret) else value
    if "${" not in text:
        return value, references.Resolved("")
    try:
        found = references.resolve(text, granted)
    except ReferenceMissing as missing:
        raise _unresolved(missing, name) from None
    if not found.secrets and not isinstance(value, Secret):
        return found.text, found
    return Secret(found.text), found


# --- credentials of the vault --------------------------------------------------------------------------------------------
def _uses(server: Server, identity: Identity | None) -> list[CredentialUse]:
    rows = CredentialUse.objects.select_related("credential__references_by").filter(identity__server=server)
    return list(rows.filter(identity=identity) if identity else rows.filter(identity__kind="shared"))


def _uses_of_draft(vault: Vault) -> list[CredentialUse]:
    rows = CredentialUse.objects.select_related("credential").filter(identity_id=vault.identity or 0)
    chosen = Credential.objects.filter(uid__in=vault.chosen)
    if len(chosen) < len(vault.chosen):
        raise NotLaunchable("credential_needed", "A credential selected for this test has been deleted.")
    return [*rows, *(CredentialUse(credential=credential) for credential in chosen)]


def _with_credentials(
    values: LaunchValues, source: Server | Registration, uses: Iterable[CredentialUse]
) -> LaunchValues:
    environment, headers = dict(values.environment), dict(values.headers)
    certificate: Certificate | None = None
    account: Parts | None = None
    account_row = (0, 0)
    secrets = list(values.secrets)
    used: list[int] = []
    for_tokens: list[int] = []
    filled: list[str] = []
    for use in uses:
        parts = _parts(source, use)
        secrets += (value for name, value in parts.secrets.items() if name != "ca" and value)
        by_token = parts.kind.fetches_tokens or parts.kind == CredentialKind.OAUTH
        (for_tokens if by_token else used).append(use.credential_id)
        headers |= kinds.headers(parts)
        if parts.kind == CredentialKind.ENVIRONMENT:
            environment[parts.details["variable"]] = parts.secrets["value"]
            filled.append(parts.details["variable"])
        if parts.kind.fetches_tokens:
            account, account_row = parts, (use.credential_id, use.credential.version)
        if parts.kind.by_reference:
            granted = reference_grants.granted_to_credential(use.credential)
            secrets += _resolved(use.credential.name, parts.details["token"], granted)[1].secrets
        if parts.kind == CredentialKind.CERTIFICATE:
            certificate = _certificate(parts)
    return replace(
        values,
        environment=environment,
        headers=headers,
        certificate=certificate,
        account=account,
        account_row=account_row,
        secrets=tuple(secrets),
        used=tuple(used),
        used_for_tokens=tuple(for_tokens),
        filled=tuple(filled),
    )


def _parts(source: Server | Registration, use: CredentialUse) -> Parts:
    """Checks the binding again: if the row was changed in any way, the secret is never sent to another address."""
    credential = use.credential
    if use.blanked_at is not None or not belongs(credential, source):
        words = f"{credential.name} is bound to {in_words(bound_to(credential))}, but this server now has a different address."
        raise NotLaunchable("credential_needed", words)
    if credential.kind == CredentialKind.ENVIRONMENT and (
        words := variables.refusal(source, credential.details.get("variable", ""))
    ):
        raise NotLaunchable("variable_refused", f"The credential {credential.name} is not used. {words}")
    if credential.kind == CredentialKind.OAUTH:
        return Parts(CredentialKind.OAUTH)  # a grant changes while the session lives: see servers/credentials/grants.py
    return credentials.opened(credential)
