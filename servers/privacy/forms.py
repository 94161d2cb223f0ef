"""The forms of the privacy page."""

import json
from dataclasses import replace
from typing import Any

from django import forms

from servers.audit.payload_privacy import PayloadPrivacy, Rule
from servers.enums import RedactedPart
from servers.kit.choices import ServerField, offer
from servers.models import PrivacySettings, RedactionRule, Server
from servers.privacy.changing import RuleValues
from servers.privacy.redaction import PATH_CHARS, PathInvalid, Subject, compiled, redacted

#: the page contains the sample and its masked copy
SAMPLE_CHARS = 50_000
#: members of tool, resource and prompt results
_OF_A_RESULT = frozenset({"content", "contents", "messages", "structuredContent"})
SAMPLE = '{\n  "user": "ann",\n  "password": "hunter2",\n  "keys": [{"name": "ci", "token": "abc"}]\n}'


def _switch(label: str, help_text: str) -> forms.BooleanField:
    widget = forms.CheckboxInput(attrs={"class": "form-check-input", "role": "switch"})
    return forms.BooleanField(label=label, help_text=help_text, required=False, widget=widget)


class PrivacySettingsForm(forms.Form):
    seal_payloads = _switch(
        "Encrypt arguments and results",
        "Uses the key ring, like secrets. Free-text search does not cover encrypted values.",
    )
    mask_by_schema = _switch(
        "Mask values that a schema declares secret",
        "Values with format: password or writeOnly in a tool's input or output schema.",
    )
    mask_detected = _switch(
        "Mask detected secrets",
        "Tokens and keys in well-known formats, such as those from GitHub, AWS, Slack and Stripe, private keys, JSON Web Tokens, and passwords in URLs. Also in server logs and error messages.",
    )

    @classmethod
    def of(cls, row: PrivacySettings) -> "PrivacySettingsForm":
        return cls(initial={name: getattr(row, name) for name in cls.base_fields})


def _path_field() -> forms.CharField:
    attrs = {
        "class": "form-control mono",
        "autocomplete": "off",
        "spellcheck": "false",
        "placeholder": "$..password",
    }
    return forms.CharField(
        label="Path",
        max_length=PATH_CHARS,
        help_text="JSONPath (RFC 9535). $.password: at the top. $..password: at any depth. $.users[*].email: of each item.",
        widget=forms.TextInput(attrs=attrs),
    )


def _part_field() -> forms.ChoiceField:
    return forms.ChoiceField(
        label="Applies to", choices=RedactedPart.choices, widget=forms.Select(attrs={"class": "form-select"})
    )


def _checked_path(path: str) -> str:
    try:
        compiled(path)
    except PathInvalid as problem:
        raise forms.ValidationError(str(problem)) from problem
    return path


class RuleForm(forms.Form):
    path = _path_field()
    part = _part_field()
    server = ServerField(label="Server", required=False, to_field_name="pk", empty_label="All servers")
    target = forms.CharField(
        label="Tool or prompt",
        required=False,
        max_length=300,
        help_text="Leave empty for all. * matches any text, as in create_*.",
        widget=forms.TextInput(attrs={"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}),
    )
    note = forms.CharField(
        label="Note",
        required=False,
        max_length=200,
        help_text="Why this rule exists.",
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )

    def __init__(self, data: Any = None, row: RedactionRule | None = None, **kwargs: Any) -> None:
        if row is not None:
            kwargs["initial"] = {
                "path": row.path,
                "part": row.part,
                "server": str(row.server_id or ""),
                "target": row.target,
                "note": row.note,
            }
        super().__init__(data, **kwargs)
        offer(self, "server", Server.objects.all())

    def clean_path(self) -> str:
        return _checked_path(self.cleaned_data["path"])

    def values(self) -> RuleValues:
        """Call it after is_valid()."""
        found = self.cleaned_data
        return RuleValues(found["path"], RedactedPart(found["part"]), found["server"], found["target"], found["note"])


class TryForm(forms.Form):
    """Applies a path and the current switches to a sample. Nothing is stored."""

    path = _path_field()
    part = _part_field()
    sample = forms.CharField(
        label="Sample",
        max_length=SAMPLE_CHARS,
        help_text="JSON: the arguments of a call, or the result that a server sends. It is not stored.",
        widget=forms.Textarea(attrs={"class": "form-control mono", "rows": 8, "spellcheck": "false"}),
    )

    def __init__(self, data: Any = None, **kwargs: Any) -> None:
        super().__init__(data, prefix="try", initial={"sample": SAMPLE, "path": "$..token"}, **kwargs)
        self.fields["path"].required = False
        words = "Leave empty to try only the current rules and switches. Rules for one server or tool are not tried."
        self.fields["path"].help_text = words

    def clean_path(self) -> str:
        path = self.cleaned_data["path"]
        return _checked_path(path) if path else ""

    def clean_sample(self) -> str:
        text = str(self.cleaned_data["sample"])
        try:
            json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise forms.ValidationError(f"Not JSON: {problem}.") from problem
        return text

    def outcome(self, policy: PayloadPrivacy) -> tuple[str, int]:
        """Return the masked sample, indented, and the number of masks. Call it after is_valid()."""
        found = self.cleaned_data
        part = RedactedPart(found["part"])
        if found["path"]:
            policy = replace(policy, rules=(*policy.rules, Rule(found["path"], part, None, "")))
        text, count = redacted(found["sample"], Subject(self._tried_as(part)), policy)
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False), count

    def _tried_as(self, part: RedactedPart) -> RedactedPart:
        """For "all parts", the part that the sample looks like: paths apply to the JSON in texts only in results."""
        if part != RedactedPart.ALL:
            return part
        sample = json.loads(self.cleaned_data["sample"])
        result = isinstance(sample, dict) and not _OF_A_RESULT.isdisjoint(sample)
        return RedactedPart.RESULT if result else RedactedPart.ARGUMENTS
