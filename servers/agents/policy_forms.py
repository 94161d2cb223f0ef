"""The forms of a policy: a new rule, and the settings besides rules."""

from typing import Any

from django import forms

from servers import limits
from servers.agents.policies import Rule
from servers.enums import OwnApproval, PolicyEffect, PolicyKind

_SELECT = {"class": "form-select"}
_NUMBER = {"class": "form-control", "inputmode": "numeric"}


class RuleForm(forms.Form):
    effect = forms.ChoiceField(label="Effect", choices=PolicyEffect.choices, widget=forms.Select(attrs=_SELECT))
    kind = forms.ChoiceField(label="Kind", choices=PolicyKind.choices, widget=forms.Select(attrs=_SELECT))
    pattern = forms.CharField(
        label="Name or URI",
        max_length=300,
        help_text="A pattern such as delete_* or file:///etc/*. * matches any text, including slashes.",
        widget=forms.TextInput(attrs={"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}),
    )

    calls_per_minute = forms.IntegerField(
        label="Calls per minute",
        required=False,
        min_value=1,
        max_value=100_000,
        help_text="For each matching name or URI. Leave empty to use only the token's limits.",
        widget=forms.NumberInput(attrs=_NUMBER),
    )

    def rule(self) -> Rule:
        """Call it on a valid form."""
        given = self.cleaned_data
        effect, kind = PolicyEffect(given["effect"]), PolicyKind(given["kind"])
        return Rule(effect, kind, given["pattern"], given["calls_per_minute"])


#: a field, and the product's limit for a token that does not set it
LIMITED = {"requests_per_second": "agent_requests_per_second", "calls_in_flight": "agent_calls_in_flight"}


class TokenPolicyForm(forms.Form):
    """The page also sends what it showed: only fields that differ from that were changed by its user. The rest of the
    form may be older than what someone else has saved since."""

    otherwise = forms.ChoiceField(
        label="If no rule matches", choices=PolicyEffect.choices, widget=forms.Select(attrs=_SELECT)
    )
    requests_per_second = forms.IntegerField(
        label="Requests per second",
        required=False,
        min_value=1,
        max_value=1000,
        widget=forms.NumberInput(attrs=_NUMBER),
    )
    calls_in_flight = forms.IntegerField(
        label="Requests in flight", required=False, min_value=1, max_value=1000, widget=forms.NumberInput(attrs=_NUMBER)
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, limit in LIMITED.items():
            self.fields[name].help_text = self.limited_by(limit)
        for field in self.fields.values():
            field.show_hidden_initial = True

    def changes(self) -> dict[str, Any]:
        """Call it on a valid form."""
        return {name: self.cleaned_data[name] for name in self.changed_data}

    def limited_by(self, limit: str) -> str:
        return f"Leave empty for {limits.in_words(limit)}."


class BundlePolicyForm(TokenPolicyForm):
    def limited_by(self, limit: str) -> str:
        return f"For all agents together. Leave empty for no shared limit; each token still has its own limit of {limits.in_words(limit)}."

    own_approval = forms.ChoiceField(
        label="Token owners can approve their own agents' calls",
        choices=OwnApproval.choices,
        help_text="Anyone else with permission to answer server requests can always approve.",
        widget=forms.Select(attrs=_SELECT),
    )
    equal_calls = forms.IntegerField(
        label="Identical calls per minute before a person is asked",
        required=False,
        min_value=1,
        max_value=10_000,
        help_text="The same call again and again with one token may be a loop. Leave empty to never ask. Agents that poll also repeat calls.",
        widget=forms.NumberInput(attrs=_NUMBER),
    )
    asks_to_repeat = forms.BooleanField(
        label="Ask a person before a call is repeated that may have run",
        required=False,
        help_text="Agents are told when it is not known whether a call ran, and may then repeat it. With this, the same call within 10 minutes waits for approval.",
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )


class EndpointPolicyForm(BundlePolicyForm):
    trusts_annotations = forms.BooleanField(
        label="Trust annotations that make a tool look harmless",
        required=False,
        help_text="Without it, readOnlyHint and idempotentHint are ignored: a server could claim anything. With it, readOnlyHint overrides destructiveHint.",
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )
