"""Which issuer to expect from an authorization server whose metadata names a different one."""

from django import forms

_PLAIN = {"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}


def _address(label: str, help_text: str, placeholder: str) -> forms.CharField:
    widget = forms.URLInput(attrs={**_PLAIN, "placeholder": placeholder})
    return forms.CharField(label=label, max_length=500, help_text=help_text, widget=widget)


class IssuerForm(forms.Form):
    named = _address(
        "Issuer named by the server", "As shown in the error of the failed sign-in.", "https://login.example.com/"
    )
    issuer = _address("Expected issuer", "Exactly as in its metadata.", "https://login.example.com")
