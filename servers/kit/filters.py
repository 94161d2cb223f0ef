"""Filters stand in the address, which people type, shorten and keep: what means nothing there is said, not dropped."""

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
    """Of an address with these parameters: the filters that were given and did not become one."""
    entered = {name: str(given.get(name) or "").strip() for name in understood}
    return [Ignored(name, entered[name][:_SHOWN]) for name, value in understood.items() if entered[name] and not value]


def ignored_of(form: forms.Form) -> list[Ignored]:
    """Of a form all of whose fields are filters."""
    form.is_valid()
    return ignored(form.data, {name: form.cleaned_data.get(name) for name in form.fields})
