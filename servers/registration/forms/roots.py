"""The rows of roots: folders that the server may ask for."""

from typing import Any, cast

from django import forms
from django.forms.formsets import formset_factory

from servers.configuration import Registration
from servers.models import Server
from servers.registration.forms.rows import RowForm, RowFormSet
from servers.validators import MAX_ROOTS, Root, root_uri, validate_root_name, validate_root_uri

PREFIX = "roots"
_MONO = {"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}


class RootForm(RowForm):
    content_fields = ("uri", "name")

    uri = forms.CharField(
        required=False,
        max_length=2_000,
        label="Folder",
        widget=forms.TextInput(attrs={**_MONO, "placeholder": "file:///srv/data"}),
    )
    name = forms.CharField(
        required=False,
        max_length=200,
        label="Name",
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )

    def clean_uri(self) -> str:
        return root_uri(str(self.cleaned_data["uri"]))

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if not (data.get("DELETE") or self.blank) and "uri" in data:
            self._try("uri", validate_root_uri, data["uri"])
            self._try("name", validate_root_name, data.get("name", ""))
        return data

    def root(self) -> Root:
        return {"uri": self.cleaned_data["uri"], "name": self.cleaned_data["name"]}


class BaseRootFormSet(RowFormSet):
    def clean(self) -> None:
        seen: set[str] = set()
        for form in self.rows():
            uri = form.cleaned_data.get("uri")
            if not uri:  # it already has an error, and two missing folders are not the same folder
                continue
            if uri in seen:
                form.add_error("uri", "This folder is listed twice.")
            seen.add(uri)
        if len(seen) > MAX_ROOTS:
            raise forms.ValidationError(f"At most {MAX_ROOTS} roots. This limit cannot be changed.")

    def roots(self) -> list[Root]:
        """Call it after is_valid()."""
        return [form.root() for form in self.rows()]


_RootFormSet = formset_factory(
    RootForm, formset=BaseRootFormSet, extra=1, can_delete=True, max_num=MAX_ROOTS + 1, absolute_max=MAX_ROOTS * 2
)


def root_rows(data: Any, server: Server | Registration | None) -> BaseRootFormSet:
    """The formset, with the roots of `server` and a blank row."""
    return cast("BaseRootFormSet", _RootFormSet(data, prefix=PREFIX, initial=server.roots if server else []))
