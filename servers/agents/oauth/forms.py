"""What a person decides about a client, and what an administrator enters for one."""

from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError

from servers import access
from servers.agents.forms import DAYS, SCOPE_HELP, USUAL_SCOPES
from servers.agents.oauth.clients import MOST_REDIRECTS
from servers.enums import AgentScope
from servers.kit.choices import ServerField, offer
from servers.models import Server


class ConsentForm(forms.Form):
    """`asked`: the scopes of the request. Many clients request every scope there is, so only the usual ones are ticked.
    `choose`: the client names no endpoint, so the person chooses a server."""

    server = ServerField(
        label="Server", help_text="The client can use only this server.", empty_label="Choose a server"
    )
    scopes = forms.MultipleChoiceField(
        label="Scopes",
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one, or deny access."},
    )
    days = forms.TypedChoiceField(
        label="Expires after", coerce=int, choices=DAYS, initial=90, widget=forms.Select(attrs={"class": "form-select"})
    )

    def __init__(self, user: Any, asked: list[str], data: Any = None, *, choose: bool) -> None:
        super().__init__(data)
        if choose:
            offer(self, "server", access.visible_servers(user).filter(archived_at=None, enabled=True))
        else:
            del self.fields["server"]
        scopes = cast("forms.MultipleChoiceField", self.fields["scopes"])
        chosen = [scope for scope in AgentScope if scope.value in asked]
        scopes.choices = [(scope.value, f"{scope.label}: {SCOPE_HELP[scope]}") for scope in chosen]
        scopes.initial = [scope.value for scope in chosen if scope.value in USUAL_SCOPES]

    def chosen_server(self) -> Server:
        """With `choose`, after is_valid()."""
        chosen: Server = self.cleaned_data["server"]
        return chosen


class ClientForm(forms.Form):
    """A client that an administrator adds, for clients that bring no metadata document."""

    name = forms.CharField(
        label="Name",
        max_length=120,
        help_text="For example Cursor. Shown to people when the client asks for access.",
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )
    redirect_uris = forms.CharField(
        label="Redirect URIs",
        help_text="One per line, exactly as in the client's documentation. Any port matches for http://127.0.0.1 and "
        "http://localhost.",
        widget=forms.Textarea(attrs={"class": "form-control mono", "rows": 3, "spellcheck": "false"}),
    )
    confidential = forms.BooleanField(
        label="With a client secret",
        required=False,
        help_text="For clients on a server. A client on a person's computer cannot keep a secret.",
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )

    def clean_redirect_uris(self) -> list[str]:
        found = [line.strip() for line in self.cleaned_data["redirect_uris"].splitlines() if line.strip()]
        if len(found) > MOST_REDIRECTS:
            raise ValidationError(f"At most {MOST_REDIRECTS} redirect URIs.")
        return found
