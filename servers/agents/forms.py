"""The form of a new token."""

from collections.abc import Sequence
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError

from servers import access
from servers.agents.tokens import MOST_DAYS, NewToken
from servers.enums import AgentScope
from servers.kit.choices import ServersField, offer
from servers.kit.lines import unique_lines
from servers.models import Server

_LINES = 50
DAYS = [(1, "1 day"), (7, "7 days"), (30, "30 days"), (90, "90 days"), (MOST_DAYS, "1 year")]
USUAL_SCOPES = [AgentScope.LIST.value, AgentScope.READ.value, AgentScope.CALL.value, AgentScope.INBOX.value]
SCOPE_HELP = {
    AgentScope.LIST: "See tools, resources and prompts.",
    AgentScope.READ: "Read and follow resources, get prompts, complete arguments.",
    AgentScope.CALL: "Run tools. Calls to tools that the server marks destructive wait for approval.",
    AgentScope.DESTRUCTIVE: "Run tools that the server marks destructive, without waiting for approval.",
    AgentScope.SAMPLING: "Answer sampling requests from servers. This uses tokens of the agent's model.",
    AgentScope.INBOX: "Server requests that the agent cannot answer wait in the inbox.",
    AgentScope.HISTORY: "Search all calls that its user can see, over the HTTP API.",
    AgentScope.AUDIT: "Read the events that its user can see, over the HTTP API.",
}


class TokenForm(forms.Form):
    account = forms.ChoiceField(
        label="Acts as",
        help_text="Service accounts are added on the Users page.",
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    name = forms.CharField(
        label="Name",
        max_length=120,
        help_text="Where it will be used, such as Claude Code on my laptop.",
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )
    days = forms.TypedChoiceField(
        label="Expires after",
        coerce=int,
        choices=DAYS,
        initial=90,
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    servers = ServersField(
        label="Servers", required=False, help_text="Select none to allow every server that you can use, now and later."
    )
    scopes = forms.MultipleChoiceField(
        label="Scopes",
        choices=[(scope.value, f"{scope.label}: {SCOPE_HELP[scope]}") for scope in AgentScope],
        initial=USUAL_SCOPES,
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one."},
    )
    tools = forms.CharField(
        label="Only these tools",
        required=False,
        help_text="Names or patterns such as search_*, one per line. Leave empty for every tool.",
        widget=forms.Textarea(attrs={"class": "form-control mono", "rows": 2, "spellcheck": "false"}),
    )
    addresses = forms.CharField(
        label="Only from these addresses",
        required=False,
        help_text="Addresses or networks such as 10.0.0.0/8, one per line. Leave empty for every address.",
        widget=forms.Textarea(attrs={"class": "form-control mono", "rows": 2, "spellcheck": "false"}),
    )

    def __init__(self, user: Any, data: Any = None, accounts: Sequence[Any] = (), **kwargs: Any) -> None:
        """`accounts`: the service accounts for which this person may create tokens."""
        super().__init__(data, **kwargs)
        self._accounts = {str(account.pk): account for account in accounts}
        if accounts:
            choices = [(pk, f"{account.get_username()} (service account)") for pk, account in self._accounts.items()]
            cast("forms.ChoiceField", self.fields["account"]).choices = [("", f"{user.get_username()} (you)"), *choices]
            self.fields["account"].required = False
        else:
            del self.fields["account"]
        offer(self, "servers", access.visible_servers(user).filter(archived_at=None))

    def clean_tools(self) -> list[str]:
        return _lines(self.cleaned_data["tools"])

    def clean_addresses(self) -> list[str]:
        return _lines(self.cleaned_data["addresses"])

    def chosen_account(self) -> Any:
        """The chosen service account; None: the person's own. After is_valid()."""
        return self._accounts.get(self.cleaned_data.get("account", ""))

    def wanted(self) -> NewToken:
        """After is_valid()."""
        given = self.cleaned_data
        return NewToken(
            given["name"],
            given["days"],
            given["scopes"],
            list(given["servers"]) or None,
            tuple(given["tools"]),
            tuple(given["addresses"]),
        )


def _lines(text: str) -> list[str]:
    found = unique_lines(text)
    if len(found) > _LINES or any(len(line) > 200 for line in found):
        raise ValidationError(f"At most {_LINES} lines of 200 characters.")
    return found


class EndpointTokenForm(forms.Form):
    """A token for one endpoint, created next to its configuration: what most agents need, and no more."""

    name = forms.CharField(
        label="Token name",
        max_length=120,
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )
    days = forms.TypedChoiceField(
        label="Expires after",
        coerce=int,
        choices=DAYS,
        initial=90,
        widget=forms.Select(attrs={"class": "form-select"}),
    )

    def wanted(self, servers: Sequence[Server]) -> NewToken:
        """After is_valid()."""
        return NewToken(self.cleaned_data["name"], self.cleaned_data["days"], USUAL_SCOPES, servers)
