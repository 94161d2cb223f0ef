"""The forms of exports and their schedules. None shows a stored secret."""

from collections.abc import Mapping
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import format_html

from servers import access
from servers.credentials.binding import NOT_ENCRYPTED, may_carry_credentials
from servers.enums import ExportFormat, ExportTarget, Interval
from servers.exporting import schedules
from servers.exporting.schedules import ScheduleSettings
from servers.models import ExportSchedule
from servers.secret import Secret
from servers.validators import validate_url

_PLAIN = {"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}
_FORMATS = [
    (ExportFormat.JSONL, "JSONL: complete and verifiable, with checkpoints"),
    (ExportFormat.CSV, "CSV: for spreadsheets"),
]
_STORE = ("endpoint", "region", "bucket", "prefix", "access_key", "secret_key")


class _PayloadsOnlyInJsonl(forms.Form):
    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        if given.get("payloads") and given.get("format") == ExportFormat.CSV:
            self.add_error("payloads", "CSV cannot include arguments and results. Choose JSONL.")
        return given


class ExportForm(_PayloadsOnlyInJsonl):
    query = forms.CharField(
        required=False,
        label="Query",
        help_text=format_html(
            "Leave empty to export the whole log. A call is exported with all its events; log lines and messages are not "
            'in the audit log. Times without a zone are in UTC. See the <a href="#{}">query fields</a>.',
            "syntax-title",
        ),
        widget=forms.TextInput(
            attrs={**_PLAIN, "autocapitalize": "off", "placeholder": "kind:sign-in user:ann last:7d"}
        ),
    )
    format = forms.ChoiceField(label="Format", choices=_FORMATS, initial=ExportFormat.JSONL)
    payloads = forms.BooleanField(
        required=False,
        label="Include arguments and results",
        help_text="Only in JSONL. They may hold personal data.",
    )

    def __init__(self, user: access.User, data: Any = None, *, query: str = "") -> None:
        super().__init__(data, initial={"query": query})
        if not access.may_read_payloads(user):
            del self.fields["payloads"]


def _text(label: str, help_text: str, example: str, *, most: int, required: bool = False) -> forms.CharField:
    box = forms.TextInput(attrs={**_PLAIN, "placeholder": example})
    return forms.CharField(label=label, help_text=help_text, max_length=most, required=required, widget=box)


class ScheduleForm(_PayloadsOnlyInJsonl):
    name = forms.CharField(label="Name", max_length=80, help_text="For example: Archive.")
    interval = forms.ChoiceField(
        label="Interval", choices=Interval.choices, initial=Interval.DAILY, help_text="On the hour, at midnight, or at midnight on Monday (UTC)."
    )  # fmt: skip
    format = forms.ChoiceField(label="Format", choices=_FORMATS, initial=ExportFormat.JSONL)
    payloads = forms.BooleanField(
        required=False, label="Include arguments and results", help_text="Only in JSONL. They may hold personal data."
    )

    def __init__(self, target: ExportTarget, data: Any = None, *, schedule: ExportSchedule | None = None) -> None:
        self.target, self.schedule = target, schedule
        names = [*self.base_fields, "directory", *_STORE[:-1]]
        initial = {name: getattr(schedule, name) for name in names} if schedule is not None else {}
        super().__init__(data, initial=initial)
        if target == ExportTarget.DIRECTORY:
            allowed = schedules.directories()
            if schedule is not None and schedule.directory not in allowed:
                allowed = [*allowed, schedule.directory]
            self.fields["directory"] = forms.ChoiceField(
                label="Directory",
                choices=[(path, path) for path in allowed],
                help_text="On the worker. An operator lists the directories in MCPADMIN_EXPORT_DIRECTORIES.",
            )
        else:
            self._add_store_fields(schedule is not None and schedule.sealed is not None)

    def _add_store_fields(self, has_secret: bool) -> None:
        self.fields["endpoint"] = _text(
            "Endpoint", "URL of the store, without the bucket.", "https://s3.eu-central-1.amazonaws.com", most=2000, required=True
        )  # fmt: skip
        self.fields["region"] = _text("Region", "As named by the store.", "eu-central-1", most=60, required=True)
        self.fields["bucket"] = _text("Bucket", "It must exist.", "audit-archive", most=255, required=True)
        self.fields["prefix"] = _text("Folder", "Optional.", "mcpadmin/production", most=500)
        self.fields["access_key"] = _text(
            "Access key ID", "Needs permission to put objects, nothing else.", "", most=200, required=True
        )
        box = forms.PasswordInput(attrs={**_PLAIN, "autocomplete": "new-password"}, render_value=False)
        help_text = "Stored. Leave empty to keep it." if has_secret else "Stored encrypted."
        self.fields["secret_key"] = forms.CharField(
            label="Secret access key", max_length=1000, required=not has_secret, help_text=help_text, widget=box
        )

    def clean_endpoint(self) -> str:
        url = str(self.cleaned_data["endpoint"]).strip()
        validate_url(url)
        if not may_carry_credentials(url):
            raise ValidationError(NOT_ENCRYPTED)
        return url

    def clean_bucket(self) -> str:
        bucket = str(self.cleaned_data["bucket"])
        if "/" in bucket or bucket in (".", ".."):
            raise ValidationError("A bucket name cannot contain a slash. Enter the folder in its own field.")
        return bucket

    def clean_prefix(self) -> str:
        prefix = str(self.cleaned_data["prefix"]).strip("/")
        if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
            raise ValidationError("Enter a path without empty parts, “.” or “..”.")
        return prefix

    def settings(self) -> ScheduleSettings:
        given: Mapping[str, Any] = self.cleaned_data
        store = {name: given[name] for name in _STORE if name in given and name != "secret_key"}
        return ScheduleSettings(
            name=given["name"],
            format=ExportFormat(given["format"]),
            payloads=given["payloads"],
            interval=Interval(given["interval"]),
            target=self.target,
            directory=given.get("directory", ""),
            secret_key=Secret(given.get("secret_key", "")),
            **cast("dict[str, str]", store),
        )
