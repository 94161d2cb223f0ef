"""Which issuer to expect of an authorization server whose metadata carries another one."""

from django import forms

_PLAIN = {"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}


def _address(label: str, help_text: str, placeholder: str) -> forms.CharField:
    widget = forms.URLInput(attrs={**_PLAIN, "placeholder": placeholder})
    return forms.CharField(label=label, max_length=500, help_text=help_text, widget=widget)


class IssuerForm(forms.Form):
    named = _address("The server names", "As in the message of the sign-in that failed.", "https://login.example.com/")
    issuer = _address(
        "Expect the issuer", "As its own metadata says it, character for character.", "https://login.example.com"
    )
