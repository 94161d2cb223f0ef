"""For authorization servers without dynamic client registration: the client that was registered by hand."""

from django import forms

_PLAIN = {"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}


class ClientForm(forms.Form):
    client_id = forms.CharField(
        label="Client ID",
        required=False,
        max_length=500,
        help_text="Leave empty unless the operator of the authorization server gave you one.",
        widget=forms.TextInput(attrs=_PLAIN),
    )
    client_secret = forms.CharField(
        label="Client secret",
        required=False,
        max_length=2_000,
        widget=forms.PasswordInput(attrs={**_PLAIN, "autocomplete": "new-password"}, render_value=False),
    )

    def client(self) -> dict[str, str]:
        return {name: self.cleaned_data[name] for name in ("client_id", "client_secret")}
