"""The forms for imports (the text of a configuration, the decision about each server in it) and for exports."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile

from servers import limits
from servers.kit.choices import LongCheckList, ServersField, offer
from servers.numbers import uuids, whole_number
from servers.registration.exporting import Form
from servers.registration.importing.applying import Choice, Decision, choices
from servers.registration.importing.document import ImportedDocument, read, too_large
from servers.registration.importing.planning import Proposal


class ImportForm(forms.Form):
    """`document` is set after is_valid(). The text is never sent back to the page: it may contain secrets."""

    text = forms.CharField(
        label="Configuration",
        required=False,
        strip=False,
        help_text="JSON, TOML or YAML: the whole file, the part with the servers, or the section of a README. Comments are allowed.",
        widget=forms.Textarea(
            attrs={"class": "form-control mono", "rows": 14, "spellcheck": "false", "autocomplete": "off"}
        ),
    )
    file = forms.FileField(
        label="Or a file",
        required=False,
        max_length=255,
        help_text=f"At most {limits.in_words('import_bytes')}.",
        widget=forms.FileInput(
            attrs={"class": "form-control", "accept": ".json,.jsonc,.json5,.toml,.yaml,.yml,.md,.txt"}
        ),
    )
    document: ImportedDocument
    source = ""

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        upload, text = data.get("file"), data.get("text") or ""
        if upload and text.strip():
            raise ValidationError("Paste a configuration or choose a file, not both.", code="both")
        if self.errors:
            return data
        self.source = _decoded(upload) if upload else text
        try:
            self.document = read(self.source)
        except ValidationError as problem:
            self.add_error("file" if upload else "text", problem)
        return data

    def as_asked(self) -> "ImportForm":
        """The form as sent back to the page: with its errors and without the text."""
        if self.is_bound:
            self.data = {}  # any mapping will do; the errors are already known
        return self


def _decoded(upload: UploadedFile) -> str:
    if upload.size is None or upload.size > limits.number("import_bytes"):
        raise ValidationError({"file": too_large()})
    try:
        return upload.read().decode("utf-8")
    except UnicodeDecodeError:
        raise ValidationError({"file": "This file is not UTF-8 text."}) from None


# --- decisions ---------------------------------------------------------------------------------------------------------
def decisions(data: Mapping[str, Any], proposals: list[Proposal]) -> dict[int, Decision]:
    """The posted choices that each server allows; a choice that is no longer allowed is outdated, and anything else
    becomes the harmless default."""
    return {proposal.index: _decision(data, proposal) for proposal in proposals}


def _decision(data: Mapping[str, Any], proposal: Proposal) -> Decision:
    index, allowed = proposal.index, choices(proposal)
    chosen = str(data.get(f"choice-{index}", ""))
    choice = Choice(chosen) if chosen in allowed else Choice.SKIP
    outdated = chosen in list(Choice) and chosen not in allowed
    typed = {
        need.key: text
        for number, need in enumerate(proposal.entry.needs)
        if (text := str(data.get(f"value-{index}-{number}", "")))
    }
    version = whole_number(str(data.get(f"version-{index}", ""))) or 0
    uid = next(iter(uuids([str(data.get(f"server-{index}", ""))])), None)
    return Decision(choice, str(data.get(f"name-{index}", "")), version, typed, uid, outdated)


# --- export ------------------------------------------------------------------------------------------------------------
class ExportForm(forms.Form):
    form = forms.ChoiceField(
        label="Format",
        choices=[
            (Form.MCP_SERVERS.value, "mcpServers: Claude, Cursor, Windsurf and most others"),
            (Form.VS_CODE.value, "VS Code: servers, with inputs for the secrets"),
        ],
        initial=Form.MCP_SERVERS.value,
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )
    own = forms.BooleanField(
        label="Include mcpadmin settings",
        required=False,
        initial=True,
        help_text="Adds tags, notes, owner, limits, timeouts, policies and the names of secrets to each server, in a field"
        " “mcpadmin” that other clients ignore.",
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )
    servers = ServersField(
        label="Servers",
        to_field_name="slug",
        error_messages={"required": "Choose at least one server."},
        widget=LongCheckList(attrs={"class": "form-check-input"}),
    )

    def __init__(self, data: Any = None, *, servers: Any) -> None:
        super().__init__(
            data, initial={"servers": list(servers.values_list("slug", flat=True)) if data is None else []}
        )
        offer(self, "servers", servers)
