"""The form of a sink: only the fields of its kind. It never shows a stored secret."""

from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from django import forms
from django.core.exceptions import ValidationError

from servers.credentials.binding import NOT_ENCRYPTED, may_carry_credentials
from servers.enums import SinkKind
from servers.forwarding.sinks import SecretNeeded, Secrets, SinkSettings, host_and_port
from servers.models import Sink
from servers.secret import Secret
from servers.validators import validate_header_name, validate_header_value, validate_url

_PLAIN = {"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}
_URLS = {
    SinkKind.OTLP: (
        "Logs endpoint of an OTLP/HTTP receiver, usually ending in /v1/logs. Records are sent as JSON.",
        "https://otel.example.com/v1/logs",
    ),
    SinkKind.HTTP: (
        "Each batch is one POST request with a Standard Webhooks signature.",
        "https://siem.example.com/audit",
    ),
}
_STARTS = [("now", "With the next event"), ("beginning", "With the oldest event in the log")]
_SHAPES = [("array", "JSON array"), ("lines", "NDJSON, one object per line")]


class _WriteOnlyText(forms.Textarea):
    """A text area that is redisplayed empty, as a password field is."""

    def format_value(self, value: Any) -> None:
        return None


def _pem(label: str, help_text: str, widget: type[forms.Textarea] = forms.Textarea) -> forms.CharField:
    box = widget(attrs={**_PLAIN, "rows": 5, "placeholder": "-----BEGIN …-----"})
    return forms.CharField(label=label, help_text=help_text, max_length=65_536, required=False, widget=box)


class SinkForm(forms.Form):
    name = forms.CharField(label="Name", max_length=80, help_text="For example: Splunk production.")

    def __init__(self, kind: SinkKind, data: Any = None, *, sink: Sink | None = None) -> None:
        self.kind, self.sink = kind, sink
        super().__init__(data, initial=_initial(sink))
        if kind == SinkKind.SYSLOG:
            self.fields["address"] = forms.CharField(
                label="Host and port",
                max_length=300,
                help_text="RFC 5424 messages over TLS (RFC 5425). The usual port is 6514.",
                widget=forms.TextInput(attrs={**_PLAIN, "placeholder": "logs.example.com:6514"}),
            )
        else:
            self._add_http_fields(kind, sink is not None and sink.sealed_value is not None)
        self._add_tls_fields(sink is not None and sink.sealed_private_key is not None)
        if sink is None:
            self.fields["start"] = forms.ChoiceField(label="Start", choices=_STARTS, initial="now")

    def _add_http_fields(self, kind: SinkKind, has_value: bool) -> None:
        help_text, example = _URLS[kind]
        box = forms.URLInput(attrs={**_PLAIN, "placeholder": example})
        self.fields["address"] = forms.CharField(label="URL", max_length=2000, help_text=help_text, widget=box)
        if kind == SinkKind.HTTP:
            self.fields["shape"] = forms.ChoiceField(label="Body", choices=_SHAPES, widget=forms.Select)
        self.fields["header"] = forms.CharField(
            label="Header",
            max_length=100,
            required=False,
            help_text="Sent with each request, for the receiver's token. Leave empty for none.",
            widget=forms.TextInput(attrs={**_PLAIN, "placeholder": "Authorization"}),
        )
        help_text = "Stored. Leave empty to keep it." if has_value else "For example: Bearer and the token."
        self.fields["value"] = forms.CharField(
            label="Header value",
            max_length=16_384,
            required=False,
            help_text=help_text,
            widget=forms.PasswordInput(attrs={**_PLAIN, "autocomplete": "new-password"}, render_value=False),
        )

    def _add_tls_fields(self, has_key: bool) -> None:
        self.fields["ca"] = _pem(
            "Private CA", "PEM. Only receivers signed by this CA are trusted. Leave empty to trust public CAs."
        )
        self.fields["certificate"] = _pem("Client certificate", "PEM. Leave empty if the receiver asks for none.")
        stored = "Stored. Leave empty to keep it." if has_key else "PEM, without a passphrase."
        self.fields["private_key"] = _pem("Private key of the client certificate", stored, _WriteOnlyText)

    @property
    def main(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name not in _TLS]

    @property
    def tls(self) -> list[forms.BoundField]:
        return [self[name] for name in _TLS]

    @property
    def tls_open(self) -> bool:
        return any(self[name].errors or self[name].value() for name in _TLS)

    def clean_address(self) -> str:
        address = str(self.cleaned_data["address"]).strip()
        if self.kind != SinkKind.SYSLOG:
            validate_url(address)
            return address
        try:
            host_and_port(address)
        except ValueError:
            raise ValidationError("Enter host and port, for example logs.example.com:6514.") from None
        return address

    def clean_header(self) -> str:
        if name := self.cleaned_data["header"]:
            validate_header_name(name)
        return str(name)

    def clean_value(self) -> str:
        if value := self.cleaned_data["value"]:
            validate_header_value(value)
        return str(value)

    def clean_ca(self) -> str:
        return _certificates(self.cleaned_data["ca"])

    def clean_certificate(self) -> str:
        return _certificates(self.cleaned_data["certificate"])

    def clean_private_key(self) -> str:
        text = str(self.cleaned_data["private_key"])
        if text.strip():
            try:
                load_pem_private_key(text.encode(), password=None)
            except (ValueError, TypeError, UnsupportedAlgorithm):
                raise ValidationError("This is not a PEM private key without a passphrase.") from None
        return text

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        if given.get("value") and not given.get("header"):
            self.add_error("header", "Name the header that carries this value.")
        if given.get("header") and "address" in given and not may_carry_credentials(given["address"]):
            self.add_error("address", NOT_ENCRYPTED)
        if given.get("private_key") and not given.get("certificate"):
            self.add_error("certificate", "Enter the certificate of this key.")
        return given

    def settings(self) -> SinkSettings:
        given = self.cleaned_data
        return SinkSettings(
            name=given["name"],
            kind=self.kind,
            address=given["address"],
            lines=given.get("shape") == "lines",
            ca=given["ca"],
            certificate=given["certificate"],
            header=given.get("header", ""),
            secrets=Secrets(Secret(given.get("value", "")), private_key=Secret(given["private_key"])),
        )

    def refuse(self, problem: SecretNeeded) -> None:
        self.add_error(
            problem.field, "Enter the secret again: it is kept only if the address and header stay the same."
        )


_TLS = ("ca", "certificate", "private_key")


def _initial(sink: Sink | None) -> dict[str, Any]:
    if sink is None:
        return {}
    names = ("name", "address", "header", "ca", "certificate")
    found = {name: getattr(sink, name) for name in names}
    return found | {"shape": "lines" if sink.lines else "array"}


def _certificates(text: str) -> str:
    if not text.strip():
        return ""
    try:
        x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        raise ValidationError("This is not a certificate in PEM.") from None
    return text.replace("\r\n", "\n").strip() + "\n"


class RewindForm(forms.Form):
    """Forward starting at a different event."""

    first = forms.IntegerField(
        label="Forward from event",
        min_value=1,
        help_text="Events that the receiver already has are sent again with the same numbers. Events before this one are skipped.",
    )
