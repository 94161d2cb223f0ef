"""The rows of headers and variables. A stored secret is never shown: an empty field keeps it."""

from collections.abc import Mapping
from typing import Any, cast

from django import forms
from django.forms.formsets import formset_factory

from servers.configuration import Registration, ValueInput, value_key
from servers.enums import TransportKind, ValueKind
from servers.kit.lines import lines_as_posted
from servers.models import Server, ServerValue
from servers.registration.checking import VALUE_RULES
from servers.registration.forms.rows import RowForm, RowFormSet
from servers.secret import Secret
from servers.validators import (
    SECRET_NAME,
)

PREFIX = "values"
BLANK_ROWS, MOST_ROWS = 1, 100
#: posted rows; further ones are ignored
ROWS_READ = MOST_ROWS * 2
#: of a value that are shown without scrolling
_MOST_LINES = 8
_MISPLACED = {
    ValueKind.HEADER: "stdio servers have no headers. Remove this row or change it to an environment variable.",
    ValueKind.ENVIRONMENT: "Servers with a URL have no environment variables. Remove this row or change it to a header.",
}


class ValueForm(RowForm):
    content_fields = ("name", "value")

    kind = forms.ChoiceField(
        choices=ValueKind.choices, label="Kind", widget=forms.Select(attrs={"class": "form-select"})
    )
    name = forms.CharField(
        required=False,
        max_length=200,
        label="Name",
        widget=forms.TextInput(
            attrs={"class": "form-control mono", "autocomplete": "off", "spellcheck": "false", "placeholder": " "}
        ),
    )
    value = forms.CharField(
        required=False,
        strip=False,
        label="Value",
        widget=forms.TextInput(attrs={"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}),
    )
    secret = forms.BooleanField(
        required=False,
        label="Secret",
        help_text="Stored encrypted and never shown again.",
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )

    vaulted = forms.BooleanField(
        required=False, label="Save as a credential", widget=forms.CheckboxInput(attrs={"class": "form-check-input"})
    )

    def __init__(
        self,
        *args: Any,
        stored: Mapping[tuple[str, str], ServerValue],
        read: frozenset[tuple[str, str]] = frozenset(),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._rows = stored
        self._read = read

    def set_widget(self) -> None:
        """Called after the formset has set the initial values: an empty box for a stored secret, dots for a secret."""
        if self.stored_row is not None:
            words = self._empty_words(self.stored_row)
            self.fields["value"].widget.attrs["placeholder"] = words
        if self.is_read:
            self.fields["value"].widget.attrs["placeholder"] = "From your input"
        lines = len(lines_as_posted(self._now("value")))
        if self.stored_row is not None or self.is_read or (self.is_bound and bool(self["secret"].value())):
            # A secret that was typed and came back with an error elsewhere must be typed again.
            self.fields["value"].widget = forms.PasswordInput(
                attrs=self.fields["value"].widget.attrs, render_value=False
            )
        elif lines > 1:  # browsers remove line breaks from single-line fields
            attrs = {**self.fields["value"].widget.attrs, "rows": min(lines, _MOST_LINES)}
            self.fields["value"].widget = forms.Textarea(attrs=attrs)

    def _empty_words(self, row: ServerValue) -> str:
        if row.sealed is not None:
            return "Set. Leave empty to keep it."
        return "Filled by a credential" if row.kind == ValueKind.ENVIRONMENT else "Value needed"

    @property
    def stored_row(self) -> ServerValue | None:
        """The sealed row that an empty box keeps: the page says when it was set."""
        row = self._rows.get(value_key(self._now("kind"), self._now("name").strip()))
        return row if row is not None and row.secret else None

    @property
    def is_read(self) -> bool:
        """Whether the box of *Add server* holds this secret, so that the page need not."""
        return not self.is_bound and value_key(self._now("kind"), self._now("name")) in self._read

    def _now(self, field: str) -> str:
        return str(self[field].value() or "")

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if data.get("DELETE") or self.blank:
            return data
        for field, words in (("name", "Enter a name."), ("kind", "Choose one.")):
            if not data.get(field):
                self.add_error(field, words)
                return data
        if "value" in data:
            shown, lines = str(self.initial.get("value") or ""), lines_as_posted(data["value"])
            data["value"] = shown if lines == lines_as_posted(shown) else "\n".join(lines)
        check_name, check_value = VALUE_RULES[ValueKind(data["kind"])]
        self._try("name", check_name, data["name"])
        self._try("value", check_value, data.get("value", ""))
        if not data.get("value"):
            self._clean_empty(data)
        return data

    def _clean_empty(self, data: dict[str, Any]) -> None:
        if data.get("secret") and self.stored_row is None and data["kind"] != ValueKind.ENVIRONMENT:
            self.add_error("value", "Enter the value.")
        if not data.get("secret") and self.stored_row is not None:
            self.add_error("value", "Enter the value again: stored secrets cannot be converted to plain text.")
        elif not data.get("secret") and value_key(data["kind"], data["name"]) in self._read:
            self.add_error("value", "Enter the value again: secrets from your input cannot be converted to plain text.")

    @property
    def keeps_secret(self) -> bool:
        data = self.cleaned_data
        return bool(data.get("secret") and not data.get("value") and not data.get("DELETE") and self.stored_row)

    @property
    def key(self) -> tuple[str, str]:
        """As `ValueInput.key`. After is_valid()."""
        return value_key(self.cleaned_data["kind"], self.cleaned_data["name"])

    def data_for_registration(self) -> dict[str, Any]:
        data = self.cleaned_data
        text, secret = data["value"], data["secret"]
        value = (Secret(text) if text else None) if secret else text
        # a variable whose value is left to credentials
        needed = value is None and self.stored_row is None
        return {
            "kind": ValueKind(data["kind"]),
            "name": data["name"],
            "secret": secret,
            "value": value,
            "needed": needed,
        }


class BaseValueFormSet(RowFormSet):
    blank_kind: ValueKind = ValueKind.HEADER
    #: for the script of the page, which reads it in any case of letters
    secret_names = SECRET_NAME.pattern

    def add_fields(self, form: Any, index: int | None) -> None:
        """A blank row is secret by default: that mistake is harmless."""
        super().add_fields(form, index)
        if index is None or index >= self.initial_form_count():
            form.fields["kind"].initial = self.blank_kind
            form.fields["secret"].initial = True
        form.set_widget()

    def clean(self) -> None:
        seen: set[tuple[str, str]] = set()
        for form in self.rows():
            name = form.cleaned_data.get("name")
            if not name:  # it has its own error, and two missing names are not duplicates
                continue
            key = value_key(form.cleaned_data.get("kind", ""), name)
            if key in seen:
                form.add_error("name", "This name is listed twice.")
            seen.add(key)

    def check_transport(self, transport: str) -> None:
        fitting = ValueKind.ENVIRONMENT if transport == TransportKind.STDIO else ValueKind.HEADER
        for form in self.rows():
            kind = form.cleaned_data.get("kind")
            if kind and kind != fitting:
                form.add_error("kind", _MISPLACED[ValueKind(kind)])

    def refuse_kept(self) -> None:
        """The URL now points elsewhere, and a secret belongs to the server it was entered for."""
        for form in self.rows():
            if form.keeps_secret:
                form.add_error(
                    "value", "The URL now points to another server. Enter this secret again or remove the row."
                )


_ValueFormSet = formset_factory(
    ValueForm,
    formset=BaseValueFormSet,
    extra=BLANK_ROWS,
    can_delete=True,
    max_num=MOST_ROWS,
    absolute_max=ROWS_READ,
)


def value_rows(data: Any, server: Server | None, kind: ValueKind, read: Registration | None = None) -> BaseValueFormSet:
    """The formset, with the rows of `server`, or those of the text that was `read`, and a blank one of `kind`."""
    stored = list(server.values.all()) if server else []
    given = list(read.used_values()) if read else []
    made = _ValueFormSet(
        data,
        prefix=PREFIX,
        initial=[_initial(row) for row in stored] + [_initial_of_read(value) for value in given],
        form_kwargs={
            "stored": {value_key(row.kind, row.name): row for row in stored},
            "read": frozenset(value_key(one.kind, one.name) for one in given if isinstance(one.value, Secret)),
        },
    )
    rows = cast("BaseValueFormSet", made)
    rows.blank_kind = kind
    return rows


def _initial(row: ServerValue) -> dict[str, Any]:
    return {"kind": row.kind, "name": row.name, "secret": row.secret, "value": "" if row.secret else row.plain}


def _initial_of_read(value: ValueInput) -> dict[str, Any]:
    return {
        "kind": value.kind,
        "name": value.name,
        "secret": value.secret,
        "value": "" if value.secret else value.text(),
    }
