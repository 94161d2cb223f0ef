"""For authorization servers without dynamic client registration: the client that was registered by hand."""

from typing import Any

from django import forms

from servers.credentials.authorizations import ChosenClient

_PLAIN = {"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}


class ClientForm(forms.Form):
    """`known`: a client ID was entered for an earlier sign-in; `forgettable`: for one of this identity."""

    forget_client = forms.BooleanField(
        label="Forget this client ID",
        required=False,
        help_text="mcpadmin registers itself instead, if the authorization server allows it.",
    )
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

    def __init__(self, data: Any = None, *, known: bool = False, forgettable: bool = False) -> None:
        super().__init__(data)
        if not forgettable:
            del self.fields["forget_client"]
        if known:
            self.fields["client_id"].help_text = "Leave empty to keep using the client ID above."

    def client(self) -> ChosenClient:
        return ChosenClient(**self.cleaned_data)
