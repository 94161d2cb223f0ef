"""The fields for a server's own limits: an empty field keeps the instance's default."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from django import forms

from servers.validators import LIMITS
from servers.validators.limits import Limit

PREFIX = "limits"


def _field(limit: Limit) -> forms.IntegerField:
    bounds = f"{limit.bounds_in_words.capitalize()}."
    out_of_bounds = f"Enter a number {limit.bounds_in_words}."
    return forms.IntegerField(
        required=False,
        label=limit.label,
        help_text=f"{limit.help} {bounds}",
        min_value=limit.least_shown,
        max_value=limit.in_unit(limit.most),
        error_messages={
            "min_value": out_of_bounds,
            "max_value": out_of_bounds,
            "invalid": "Enter a whole number or leave empty.",
        },
        widget=forms.NumberInput(
            attrs={
                "class": "form-control num",
                "placeholder": f"{limit.in_unit(limit.default):,}",
                "autocomplete": "off",
            }
        ),
    )


class LimitsForm(forms.Form):
    """Its fields have the names in LIMITS, each in the limit's own unit."""

    def __init__(self, data: Any, overrides: dict[str, int]) -> None:
        initial = {name: LIMITS[name].in_unit(value) for name, value in overrides.items() if name in LIMITS}
        super().__init__(data, prefix=PREFIX, initial=initial)
        self.fields.update({name: _field(limit) for name, limit in LIMITS.items()})

    def clear_errors(self) -> None:
        self._errors = forms.utils.ErrorDict()

    def groups(self) -> Iterator[tuple[str, list[tuple[Limit, forms.BoundField]]]]:
        """Yield (title, [(limit, bound field)]) in page order."""
        for title, limits in groupby(LIMITS.values(), lambda limit: limit.group):
            yield title, [(limit, self[limit.name]) for limit in limits]

    @property
    def opened(self) -> bool:
        """Whether the section is shown expanded, because something in it is wrong."""
        return bool(self.is_bound and self.errors)

    def overrides(self) -> dict[str, int]:
        """The limits as stored. Call it after is_valid()."""
        given = {name: value for name, value in self.cleaned_data.items() if value is not None}
        return {name: value * LIMITS[name].factor for name, value in given.items()}
