"""What each kind of credential consists of: its open details, its secret parts, and the rules for both."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from django.core.exceptions import ValidationError
from django.utils import timezone

from servers import limits, validators
from servers.credentials import assertions, service_account, variables
from servers.enums import CredentialKind
from servers.secret import Secret


@dataclass(frozen=True)
class Parts:
    """`details` is shown on pages; `secrets` is sealed as JSON. Both by part name."""

    kind: CredentialKind
    details: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict, repr=False)

    def sealed_text(self) -> str:
        """In plain text: seal it at once."""
        return json.dumps({name: value.reveal() for name, value in sorted(self.secrets.items())})

    def secret(self, name: str) -> str:
        found = self.secrets.get(name)
        return found.reveal() if found is not None else ""


def opened(kind: str, details: Mapping[str, str], text: Secret) -> Parts:
    secrets = {name: Secret(value) for name, value in json.loads(text.reveal()).items()}
    return Parts(CredentialKind(kind), details, secrets)


def check(parts: Parts) -> None:
    """Raises ValidationError with messages by part."""
    rule = _RULES.get(parts.kind)
    if rule is None:
        raise ValidationError(f"A credential of kind {parts.kind.label} cannot be added here.", code="kind")
    rule(parts)


def headers(parts: Parts) -> dict[str, Secret]:
    """The headers that a request carries."""
    if parts.kind == CredentialKind.BEARER:
        return {"Authorization": Secret(f"Bearer {parts.secret('token')}")}
    if parts.kind == CredentialKind.HEADER:
        return {parts.details["header"]: Secret(parts.secret("value"))}
    if parts.kind == CredentialKind.BASIC:
        # RFC 7617 section 2: UTF-8, no colon in the user name
        pair = f"{parts.details['user']}:{parts.secret('password')}".encode()
        return {"Authorization": Secret(f"Basic {b64encode(pair).decode()}")}
    return {}


def header_names(kind: str, details: Mapping[str, str]) -> set[str]:
    """The headers, in lower case, that a server's own rows must not also set."""
    if kind in (CredentialKind.BEARER, CredentialKind.BASIC, CredentialKind.OAUTH):
        return {"authorization"}
    if CredentialKind(kind).fetches_tokens:
        return {"authorization"}
    return {details["header"].lower()} if kind == CredentialKind.HEADER else set()


# --- rules ---------------------------------------------------------------------------------------------------------------
def _bearer(parts: Parts) -> None:
    _checked("token", _required(parts.secret("token"), "the token"), validators.validate_header_value)
    if " " in parts.secret("token"):
        raise ValidationError({"token": "Enter only the token, without “Bearer”."})


def _header(parts: Parts) -> None:
    _checked("header", _required(parts.details.get("header", ""), "the name"), validators.validate_header_name)
    _checked("value", _required(parts.secret("value"), "the value"), validators.validate_header_value)


def _basic(parts: Parts) -> None:
    user = parts.details.get("user", "")
    if not user or ":" in user or any(ord(char) < 32 or ord(char) == 127 for char in user + parts.secret("password")):
        raise ValidationError({"user": "Enter a username without a colon, on one line."})
    _required(parts.secret("password"), "the password", "password")


def _variable(parts: Parts) -> None:
    _checked("variable", _required(parts.details.get("variable", ""), "the name"), validators.validate_variable_name)
    if words := variables.execution_refusal(parts.details["variable"]):
        raise ValidationError({"variable": ValidationError(words, code="execution")})
    _checked("value", _required(parts.secret("value"), "the value"), validators.validate_variable_value)


def _certificate(parts: Parts) -> None:
    """A certificate with its matching key, readable without a passphrase, and a private CA if the server's certificate
    needs one; the CA may also be alone."""
    texts = {name: parts.secret(name) for name in ("certificate", "key", "ca")}
    if any(len(text) > limits.number("pem_bytes") for text in texts.values()):
        raise ValidationError(f"A certificate or key is too large. {limits.stated('pem_bytes')}")
    if texts["ca"]:
        authorities = _certificates("ca", texts["ca"])
        if not (texts["certificate"] or texts["key"]):
            _unexpired("ca", authorities[0])
            return
    _required(texts["certificate"], "a client certificate with its key, or a private CA alone", "certificate")
    _required(texts["key"], "the private key of the certificate", "key")
    found = _certificates("certificate", texts["certificate"])
    try:
        key = load_pem_private_key(texts["key"].encode(), password=None)
    except (ValueError, TypeError) as exc:
        words = "This is not a PEM private key without a passphrase."
        raise ValidationError({"key": ValidationError(words, code="key")}) from exc
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != found[0].public_key().public_bytes(*form):
        raise ValidationError({"key": ValidationError("This key does not match the certificate.", code="key")})
    _unexpired("certificate", found[0])


def _unexpired(part: str, certificate: x509.Certificate) -> None:
    if certificate.not_valid_after_utc <= timezone.now():
        raise ValidationError({part: ValidationError("This certificate has expired.", code="expired")})


def _service_account(parts: Parts) -> None:
    details = parts.details
    service_account.check(
        details.get("client", ""),
        details.get("issuer", ""),
        parts.secret("secret"),
        parts.secret("key"),
        details.get("scopes", ""),
    )


def _workload(parts: Parts) -> None:
    assertions.check_workload(*_texts(parts, "client", "issuer", "scopes", "token"))


def _enterprise(parts: Parts) -> None:
    names = ("client", "issuer", "scopes", "token", "provider", "provider_client")
    assertions.check_enterprise(*_texts(parts, *names))


def _texts(parts: Parts, *names: str) -> list[str]:
    return [parts.details.get(name, "") for name in names]


def _certificates(part: str, text: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError as exc:
        raise ValidationError({part: ValidationError("This is not a PEM certificate.", code="pem")}) from exc


def certificate_of(parts: Parts) -> x509.Certificate:
    """The client's own certificate; the private CA if there is none."""
    pem = parts.secret("certificate") or parts.secret("ca")
    return x509.load_pem_x509_certificates(pem.encode())[0]


def _required(text: str, words: str, part: str = "") -> str:
    if not text:
        problem = ValidationError(f"Enter {words}.", code="required")
        raise ValidationError({part: problem}) if part else problem
    return text


def _checked(part: str, text: str, rule: Callable[[str], None]) -> None:
    try:
        rule(text)
    except ValidationError as problem:
        raise ValidationError({part: problem}) from problem


_RULES: dict[str, Callable[[Parts], None]] = {
    CredentialKind.BEARER: _bearer,
    CredentialKind.HEADER: _header,
    CredentialKind.BASIC: _basic,
    CredentialKind.ENVIRONMENT: _variable,
    CredentialKind.CERTIFICATE: _certificate,
    CredentialKind.SERVICE_ACCOUNT: _service_account,
    CredentialKind.WORKLOAD: _workload,
    CredentialKind.ENTERPRISE: _enterprise,
}
