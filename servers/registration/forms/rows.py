"""What the formsets of a server's form share: rows that are checked together, and adding a row without script."""

from typing import Any

from django import forms
from django.forms.formsets import BaseFormSet
from django.http import QueryDict

from servers.numbers import whole_number


class RowForm(forms.Form):
    """One row. `blank` rows are ignored."""

    #: a row counts as blank if all these fields are empty
    content_fields: tuple[str, ...] = ()

    @property
    def blank(self) -> bool:
        cleaned = getattr(self, "cleaned_data", {})
        return not any(cleaned.get(name) for name in self.content_fields)

    def _try(self, field: str, rule: Any, value: str) -> None:
        try:
            rule(value)
        except forms.ValidationError as problem:
            self.add_error(field, problem)


class RowFormSet(BaseFormSet):
    def add_fields(self, form: forms.Form, index: int | None) -> None:
        super().add_fields(form, index)
        form.empty_permitted = False  # we decide what is blank: stored rows may have changed meanwhile

    def rows(self) -> list[Any]:
        """The rows that were filled in and not removed. Call it after is_valid()."""
        cleaned = (form for form in self.forms if hasattr(form, "cleaned_data"))
        return [form for form in cleaned if not (form.blank or form.cleaned_data.get("DELETE"))]

    def judged(self) -> list[tuple[int, Any]]:
        """The rows whose errors count, with their position on the page: those that are not about to be removed."""
        return [(at, form) for at, form in enumerate(self.forms, 1) if not form.cleaned_data.get("DELETE")]

    def clear_errors(self) -> None:
        """Rows that are still being edited show no errors."""
        self._errors: list[Any] = []
        self._non_form_errors = self.error_class()
        for form in self.forms:
            form._errors = forms.utils.ErrorDict()


def with_another_row(data: QueryDict, prefix: str) -> QueryDict:
    """`data` as if the formset had been posted with one more blank row."""
    data = data.copy()
    total = f"{prefix}-TOTAL_FORMS"
    data[total] = str((whole_number(data.get(total, "")) or 0) + 1)
    return data
