"""The forms of subscriptions: the board's filter, reading and retention, the webhook."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError

from servers.kit.filters import Ignored, ignored_of
from sessions.enums import SubscriptionState
from sessions.models import Subscription
from sessions.subscriptions.board import ALL, ATTENTION, Filters
from sessions.subscriptions.settings import BOUNDS, URL_CHARS, Settings

MIB = 1024 * 1024
_SELECT = {"class": "form-select fit"}
_SHOWN = [("", "Active"), (ATTENTION, "Needs attention"), *SubscriptionState.choices, (ALL, "All")]


class BoardFilter(forms.Form):
    """Every filter is in the URL. An unknown value does not filter, and the page says so."""

    text = forms.CharField(
        required=False,
        max_length=200,
        label="URI, title or server",
        widget=forms.TextInput(
            attrs={
                "class": "form-control",
                "type": "search",
                "placeholder": "URI, title or server",
                "data-shortcut-filter": "",
            }
        ),
    )
    server = forms.ChoiceField(required=False, label="Server", widget=forms.Select(attrs=_SELECT))
    show = forms.ChoiceField(required=False, label="State", choices=_SHOWN, widget=forms.Select(attrs=_SELECT))

    def __init__(self, data: Mapping[str, Any], servers: Sequence[tuple[str, str]]) -> None:
        super().__init__(data)
        cast("forms.ChoiceField", self.fields["server"]).choices = [("", "All servers"), *servers]

    def filters(self) -> Filters:
        self.is_valid()
        return Filters(**{name: str(self.cleaned_data.get(name) or "") for name in self.fields})

    def ignored(self) -> list[Ignored]:
        return ignored_of(self)


class SettingsForm(forms.Form):
    """Edits some of a subscription's Settings. `names` maps a setting to its form field where the names differ.

    The page also sends the values that it showed: only fields that differ from these were changed by the user. The rest
    of the form may be older than what another person has saved since."""

    names: Mapping[str, str] = {}

    def __init__(self, subscription: Subscription, data: Any = None) -> None:
        self.before = Settings.of(subscription)
        super().__init__(data, initial=self.fields_of(self.before))
        for field in self.fields.values():
            field.show_hidden_initial = True

    def fields_of(self, settings: Settings) -> dict[str, Any]:
        raise NotImplementedError

    def changes(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in self.changed_data}

    def settings(self) -> Settings:
        """For a valid form: the user's changes, and the current values of the other settings."""
        return replace(self.before, **self.changes())

    def refuse(self, problem: ValidationError) -> None:
        """Show domain validation errors next to the fields that they concern."""
        errors = getattr(problem, "message_dict", None) or {"": problem.messages}
        for setting, words in errors.items():
            field = self.names.get(setting, setting)
            self.add_error(field if field in self.fields else None, words)


def _number(label: str, setting: str, help_text: str, scale: int = 1) -> forms.IntegerField:
    least, most = BOUNDS[setting]
    return forms.IntegerField(label=label, help_text=help_text, min_value=least // scale, max_value=most // scale)


class ReadingForm(SettingsForm):
    names = {"keep_bytes": "keep_mib"}
    notify = forms.BooleanField(
        required=False,
        label="Show notifications",
        help_text="Everyone with access to this server sees a notification when a new version is read.",
    )
    min_interval_seconds = _number(
        "Read at most every",
        "min_interval_seconds",
        "Updates within this time are combined into one read.",
    )
    keep_count = _number("Keep at most", "keep_count", "The newest version is always kept.")
    keep_days = _number("Keep for", "keep_days", "Versions that were replaced longer ago are removed.")
    keep_mib = _number("Maximum storage", "keep_bytes", "The oldest versions are removed first.", MIB)

    def fields_of(self, settings: Settings) -> dict[str, Any]:
        found = {name: getattr(settings, name) for name in self.base_fields if name != "keep_mib"}
        return found | {"keep_mib": max(1, settings.keep_bytes // MIB)}

    def changes(self) -> dict[str, Any]:
        found = super().changes()
        return found | ({"keep_bytes": found.pop("keep_mib") * MIB} if "keep_mib" in found else {})


class WebhookForm(SettingsForm):
    webhook_url = forms.CharField(
        required=False,
        max_length=URL_CHARS,
        label="URL",
        help_text="For each new version, mcpadmin posts a signed JSON message without the content to this URL. Leave empty for no webhook.",
        widget=forms.URLInput(attrs={"placeholder": "https://hooks.example.com/mcp", "autocomplete": "off"}),
    )

    def fields_of(self, settings: Settings) -> dict[str, Any]:
        return {"webhook_url": settings.webhook_url}
