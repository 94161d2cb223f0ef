"""The form for the limits: days and megabytes for each kind."""

from collections.abc import Mapping
from typing import Any

from django import forms

from sessions.enums import StoredKind
from sessions.retention.limits import Limit, limits

MOST_DAYS = 36_500
MOST_MB = 1_000_000_000
_MB = 1_000_000


def _number(label: str, most: int) -> forms.IntegerField:
    attrs = {"class": "form-control num", "placeholder": "no limit", "inputmode": "numeric"}
    words = "Enter a whole number of 1 or more, or leave it empty to keep everything."
    errors = {"min_value": words, "invalid": words, "max_value": f"Enter at most {most:,} (a fixed limit)."}
    return forms.IntegerField(
        label=label,
        required=False,
        min_value=1,
        max_value=most,
        widget=forms.NumberInput(attrs=attrs),
        error_messages=errors,
    )


class LimitsForm(forms.Form):
    def __init__(self, data: Any = None) -> None:
        self.kinds = limits()
        initial: dict[str, Any] = {}
        for kind, limit in self.kinds.items():
            initial[f"{kind.value}_days"] = limit.days
            initial[f"{kind.value}_mb"] = None if limit.bytes is None else max(1, round(limit.bytes / _MB))
        super().__init__(data, initial=initial)
        for kind in self.kinds:
            self.fields[f"{kind.value}_days"] = _number(f"{kind.label}: days", MOST_DAYS)
            self.fields[f"{kind.value}_mb"] = _number(f"{kind.label}: MB", MOST_MB)

    def clean(self) -> dict[str, Any]:
        found = super().clean() or {}
        calls, contents = found.get("calls_days"), found.get("payloads_days")
        if calls and contents and contents > calls:
            self.add_error(
                "payloads_days",
                f"Arguments and results are removed with their calls, after {calls} days. Enter at most {calls}.",
            )
        return found

    def pairs(self) -> list[tuple[StoredKind, forms.BoundField, forms.BoundField]]:
        return [(kind, self[f"{kind.value}_days"], self[f"{kind.value}_mb"]) for kind in self.kinds]

    def wanted(self) -> Mapping[StoredKind, Limit]:
        """The entered limits. Call is_valid() first."""
        return {kind: self._limit(kind) for kind in self.kinds}

    def _limit(self, kind: StoredKind) -> Limit:
        megabytes = self.cleaned_data[f"{kind.value}_mb"]
        return Limit(self.cleaned_data[f"{kind.value}_days"], None if megabytes is None else megabytes * _MB)
