"""Filters are in the URL, which people type, shorten and bookmark: invalid ones are reported, not silently dropped."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms

_SHOWN = 60


@dataclass(frozen=True)
class Ignored:
    name: str
    value: str


def ignored(given: Mapping[str, Any], understood: Mapping[str, Any]) -> list[Ignored]:
    """The filters in a URL with these parameters that were given but are invalid."""
    entered = {name: str(given.get(name) or "").strip() for name in understood}
    return [Ignored(name, entered[name][:_SHOWN]) for name, value in understood.items() if entered[name] and not value]


def ignored_of(form: forms.Form) -> list[Ignored]:
    """The same for a form all of whose fields are filters."""
    form.is_valid()
    return ignored(form.data, {name: form.cleaned_data.get(name) for name in form.fields})
