"""What a person decides about a client, and what an administrator enters for one."""

from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError

from servers import access
from servers.agents.forms import DAYS, SCOPE_HELP, USUAL_SCOPES
from servers.agents.oauth import grants
from servers.agents.oauth.clients import MOST_REDIRECTS
from servers.agents.oauth.grants import Endpoint
from servers.enums import AgentScope
from servers.kit.choices import MOST_OFFERED, LongSelect


class ConsentForm(forms.Form):
    """`asked`: the scopes of the request. Many clients request every scope there is, so only the usual ones are ticked.
    `choose`: the client names no endpoint, so the person chooses one, by its uid."""

    endpoint = forms.ChoiceField(
        label="Server or bundle",
        help_text="The client can use only this one. Choose the one whose address the client uses.",
        widget=LongSelect,
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
        self._user = user
        if choose:
            cast("forms.ChoiceField", self.fields["endpoint"]).choices = _endpoints(user)
        else:
            del self.fields["endpoint"]
        scopes = cast("forms.MultipleChoiceField", self.fields["scopes"])
        chosen = [scope for scope in AgentScope if scope.value in asked]
        scopes.choices = [(scope.value, f"{scope.label}: {SCOPE_HELP[scope]}") for scope in chosen]
        scopes.initial = [scope.value for scope in chosen if scope.value in USUAL_SCOPES]

    def clean_endpoint(self) -> Endpoint:
        found = grants.endpoint_of(self._user, uid=self.cleaned_data["endpoint"])
        if found is None:
            raise ValidationError("It was removed, or you can no longer use it. Choose another one.")
        return found


def _endpoints(user: Any) -> list[Any]:
    """Choices, in groups where there are bundles."""
    servers = access.visible_servers(user).filter(archived_at=None, enabled=True).order_by("name", "pk")
    named = list(servers.values_list("uid", "name")[:MOST_OFFERED])
    bundles = list(grants.bundles_of(user).values_list("uid", "name"))
    return [
        ("", "Choose a server or bundle" if bundles else "Choose a server"),
        *([("Servers", named), ("Bundles", bundles)] if bundles else named),
    ]


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
