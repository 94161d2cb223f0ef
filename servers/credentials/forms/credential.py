"""The form of one credential: only the fields of its kind. It never shows a stored value."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from servers.enums import CredentialKind
from servers.secret import Secret
from servers.validators import is_reference

_PLAIN = {"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}
#: kinds that a person types in; the others come from a sign-in
ENTERED = (
    CredentialKind.BEARER,
    CredentialKind.HEADER,
    CredentialKind.BASIC,
    CredentialKind.ENVIRONMENT,
    CredentialKind.CERTIFICATE,
    CredentialKind.SERVICE_ACCOUNT,
    CredentialKind.WORKLOAD,
    CredentialKind.ENTERPRISE,
)


def _open(
    label: str, help_text: str = "", placeholder: str = "", *, required: bool = True, most: int = 200
) -> forms.CharField:
    widget = forms.TextInput(attrs={**_PLAIN, "placeholder": placeholder})
    return forms.CharField(label=label, help_text=help_text, max_length=most, required=required, widget=widget)


def _secret(label: str, help_text: str = "", *, required: bool = True) -> forms.CharField:
    widget = forms.PasswordInput(attrs={**_PLAIN, "autocomplete": "new-password"}, render_value=False)
    return forms.CharField(
        label=label, help_text=help_text, strip=True, max_length=16_384, required=required, widget=widget
    )


class _WriteOnlyText(forms.Textarea):
    """A text area that is redisplayed empty, as a password field is."""

    def format_value(self, value: Any) -> None:
        return None


class _ReferenceInput(forms.TextInput):
    """A token entered instead of a reference is not redisplayed."""

    def format_value(self, value: Any) -> str | None:
        return value if is_reference(str(value)) else None


def _pem(label: str, help_text: str, *, required: bool = True, secret: bool = False) -> forms.CharField:
    kind = _WriteOnlyText if secret else forms.Textarea
    widget = kind(attrs={**_PLAIN, "rows": 6, "placeholder": "-----BEGIN …-----"})
    return forms.CharField(label=label, help_text=help_text, max_length=65_536, required=required, widget=widget)


def _client() -> forms.CharField:
    return _open("Client ID", "As registered with the authorization server.")


def _issuer() -> forms.CharField:
    return _open(
        "Authorization server",
        "Issuer URL. The credential is never sent to any other issuer.",
        "https://login.example.com",
    )


def _scopes() -> forms.CharField:
    return _open(
        "Scopes",
        "Separated by spaces. Used if the server names none. Leave empty to use the scopes in its metadata.",
        "orders.read orders.write",
        required=False,
        most=1000,
    )


def _reference(label: str, whose: str) -> forms.CharField:
    help_text = f"A reference to {whose}. The worker reads it each time it needs a token; it is never stored."
    widget = _ReferenceInput(attrs={**_PLAIN, "placeholder": "${file:/run/secrets/token}"})
    return forms.CharField(label=label, help_text=help_text, max_length=1000, widget=widget)


_DETAILS: dict[str, dict[str, forms.CharField]] = {
    CredentialKind.HEADER: {"header": _open("Header", placeholder="X-API-Key")},
    CredentialKind.BASIC: {"user": _open("Username")},
    CredentialKind.ENVIRONMENT: {"variable": _open("Variable", placeholder="API_TOKEN")},
    CredentialKind.SERVICE_ACCOUNT: {"client": _client(), "issuer": _issuer(), "scopes": _scopes()},
    CredentialKind.WORKLOAD: {
        "token": _reference(
            "Workload token", "a signed token from the platform, such as a Kubernetes service account token"
        ),
        "client": _client(),
        "issuer": _issuer(),
        "scopes": _scopes(),
    },
    CredentialKind.ENTERPRISE: {
        "token": _reference("ID token", "the ID token that the identity provider issued for the person or team"),
        "provider": _open(
            "Identity provider",
            "Its token endpoint, which exchanges the ID token for an assertion.",
            "https://id.example.com/oauth2/token",
            most=2000,
        ),
        "provider_client": _open("Client ID at the provider", "mcpadmin's client ID at the identity provider."),
        "issuer": _issuer(),
        "client": _client(),
        "scopes": _scopes(),
    },
}
_SECRETS: dict[str, dict[str, forms.CharField]] = {
    CredentialKind.BEARER: {"token": _secret("Token", "Without “Bearer”.")},
    CredentialKind.HEADER: {"value": _secret("Value")},
    CredentialKind.BASIC: {"password": _secret("Password")},
    CredentialKind.ENVIRONMENT: {"value": _secret("Value")},
    CredentialKind.CERTIFICATE: {
        "certificate": _pem(
            "Certificate",
            "PEM, followed by intermediate certificates. Leave certificate and key empty if you only need to trust a private CA.",
            required=False,
        ),
        "key": _pem("Private key", "PEM, without a passphrase.", required=False, secret=True),
        "ca": _pem(
            "Private CA",
            "PEM. Only server certificates signed by this CA are trusted. Leave empty to trust public CAs.",
            required=False,
        ),
    },
    CredentialKind.SERVICE_ACCOUNT: {
        "secret": _secret("Client secret", "Leave empty if you use a private key.", required=False),
        "key": _pem("Private key", "PEM, without a passphrase. Used instead of a secret.", required=False, secret=True),
    },
    CredentialKind.WORKLOAD: {},
    CredentialKind.ENTERPRISE: {
        "provider_secret": _secret("Client secret at the provider", "Leave empty if not required.", required=False),
        "secret": _secret("Client secret", "Client secret at the authorization server. Optional.", required=False),
    },
}


def shown_details(kind: str, details: dict[str, str]) -> list[tuple[str, str]]:
    """(label, text): the form's own fields first, in their order."""
    labels = {name: str(field.label) for name, field in _DETAILS.get(kind, {}).items()}
    others = {name: name.capitalize() for name in details if name not in labels}
    return [(label, details[name]) for name, label in (labels | others).items() if details.get(name)]


class CredentialForm(forms.Form):
    """`stored`: the open details of a credential whose value is replaced; its name and place are not asked for
    again."""

    def __init__(self, kind: str, data: Any = None, *, stored: dict[str, str] | None = None, url: str = "") -> None:
        self.kind = CredentialKind(kind)
        super().__init__(data)
        if stored is None:
            self.fields["name"] = forms.CharField(
                label="Name", max_length=120, help_text="For example: Orders API, read-only."
            )
            if self.kind != CredentialKind.ENVIRONMENT:
                self.fields["url"] = self._url(url)
        for name, field in self._parts(_DETAILS).items():
            self.fields[name] = field
            field.initial = (stored or {}).get(name, "")
        self.fields.update(self._parts(_SECRETS))

    def details(self) -> dict[str, str]:
        """The details that were filled in, with single spaces."""
        given = {name: " ".join(self.cleaned_data[name].split()) for name in _DETAILS.get(self.kind, {})}
        return {name: text for name, text in given.items() if text}

    def secrets(self) -> dict[str, Secret]:
        return {name: Secret(self.cleaned_data[name]) for name in _SECRETS[self.kind]}

    def refuse(self, problem: ValidationError) -> None:
        """Show the domain's errors at the fields that they are about."""
        errors = getattr(problem, "message_dict", None) or {"": problem.messages}
        for name, words in errors.items():
            self.add_error(name if name in self.fields else None, words)

    def _parts(self, table: dict[str, dict[str, forms.CharField]]) -> dict[str, forms.CharField]:
        """Copied for each form: Django copies only fields that are declared on the class."""
        return {name: _copied(field) for name, field in table.get(self.kind, {}).items()}

    def _url(self, url: str) -> forms.CharField:
        widget = forms.URLInput(attrs={**_PLAIN, "placeholder": "https://mcp.example.com"})
        help_text = (
            "Any URL of the server. The credential is bound to its scheme, host and port and never sent elsewhere."
        )
        if self.kind.fetches_tokens:
            help_text = "Any URL of the server. Tokens are sent only to its scheme, host and port."
        return forms.CharField(label="For", max_length=2000, initial=url, help_text=help_text, widget=widget)


class OwnCredentialForm(CredentialForm):
    """For a user's own identity at one server: its name and place are known. `variables`: those that it may fill."""

    def __init__(self, kind: str, data: Any = None, *, variables: Sequence[str] = ()) -> None:
        super().__init__(kind, data, stored={})
        if self.kind == CredentialKind.ENVIRONMENT:
            self.fields["variable"].widget = forms.Select(
                attrs={"class": "form-select"}, choices=[(name, name) for name in variables]
            )


def _copied(field: forms.CharField) -> forms.CharField:
    return field.__deepcopy__({})
