"""The form of a server: registering, changing and testing one. It speaks to the domain in plain data only."""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError

from servers import validators
from servers.configuration import Registration
from servers.enums import (
    ConnectionPolicy,
    Environment,
    EraChoice,
    NetworkAccess,
    Recording,
    SignsInAs,
    TransportKind,
    ValueKind,
)
from servers.kit.lines import lines_as_posted, unique_lines
from servers.models import Bundle, Server
from servers.packages.commands import readable
from servers.registration.forms import roots, values
from servers.registration.forms.limits import LimitsForm
from servers.registration.forms.rows import with_another_row
from servers.registration.forms.suggestion import suggest
from servers.registration.forms.uses import FOUND_OUT, OF_ERA, OF_RECORDING, OF_TRANSPORT
from servers.registration.proposals import proposed

#: the button that adds a row: the prefix of its formset
ADD_ROW = {"_add_row": values.PREFIX, "_add_root": roots.PREFIX}
CONNECT_HELP = (
    "For connection and handshake. Use at least 120 if a launcher such as npx or uvx installs the server first."
)
_MONO = {"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}
#: fields of one entry on each line, with the rule of an entry
_LINES = {
    "readable_paths": validators.validate_path,
    "writable_paths": validators.validate_path,
    "network_hosts": validators.validate_host,
}
_PLAIN = (
    *("name", "slug", "description", "notes", "environment", "era", "command", "working_directory", "url"),
    "network_access",
    *("connection_policy", "signs_in_as", "worker_label", "answers_sampling", "answers_elicitation", "recording"),
    *validators.TIMES,
)


def _seconds(name: str, label: str, initial: int, help_text: str) -> forms.IntegerField:
    least, most = validators.TIMES[name]
    widget = forms.NumberInput(attrs={"class": "form-control"})
    return forms.IntegerField(
        min_value=least, max_value=most, initial=initial, label=label, help_text=help_text, widget=widget
    )


def _text(
    label: str, length: int, help_text: str = "", *, mono: bool = False, required: bool = False
) -> forms.CharField:
    widget = forms.TextInput(attrs=dict(_MONO) if mono else {"class": "form-control"})
    return forms.CharField(label=label, max_length=length, required=required, help_text=help_text, widget=widget)


def _lines(label: str, placeholder: str, help_text: str) -> forms.CharField:
    widget = forms.Textarea(attrs={**_MONO, "rows": 2, "placeholder": placeholder})
    return forms.CharField(label=label, required=False, max_length=60_000, help_text=help_text, widget=widget)


def _switch(label: str, help_text: str) -> forms.BooleanField:
    widget = forms.CheckboxInput(attrs={"class": "form-check-input"})
    return forms.BooleanField(label=label, required=False, initial=True, help_text=help_text, widget=widget)


def _select(label: str, choices: Any, initial: str, help_text: str = "", *, required: bool = True) -> forms.ChoiceField:
    widget = forms.Select(attrs={"class": "form-select"})
    return forms.ChoiceField(
        label=label, choices=choices, initial=initial, help_text=help_text, widget=widget, required=required
    )


class ServerForm(forms.Form):
    """`ServerForm(data, user=…, server=…)`; `values` and `roots` are formsets, `limits` is a form of its own.

    `adding_row` is true when a button to add a row was pressed: the form then has one row more, and no errors.
    `notes_for_user` says how the input was interpreted, such as a command line that was split. `read`: the values that
    an unbound form is filled with, and that a bound one was filled with, without their secrets.
    """

    name = _text("Name", 120, required=True)
    slug = forms.SlugField(
        label="Short name",
        max_length=64,
        required=False,
        help_text="Used in URLs: letters, digits and hyphens. Generated from the name if empty.",
        widget=forms.TextInput(attrs=dict(_MONO)),
    )
    description = _text("Description", 500)
    transport = forms.ChoiceField(
        label="Transport",
        required=False,
        choices=[("", "Detect from my input"), *TransportKind.choices],
        help_text=FOUND_OUT,
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    url = _text(
        "URL",
        2000,
        "For example https://mcp.example.com/mcp. Path and query can contain ${VARIABLES} of the worker.",
        mono=True,
    )
    command = _text("Command", 1000, "A program or a full command line, such as npx -y @acme/mcp-server.", mono=True)
    arguments = forms.CharField(
        label="Arguments",
        required=False,
        strip=False,
        max_length=100_000,
        help_text=(
            "One per line, without quotes. An argument with several lines is kept as long as you leave its lines as they are. ${NAME} is a variable of this server or one that the worker provides; ${file:/path} is a file on the worker. Write $${ for a literal ${."
        ),
        widget=forms.Textarea(attrs={**_MONO, "rows": 4}),
    )
    working_directory = _text(
        "Working directory",
        1000,
        "Absolute path. The server can change files in this folder. Leave empty to use a private directory.",
        mono=True,
    )
    readable_paths = _lines("Files it may read", "/srv/data", "Folders and files, one per line.")
    writable_paths = _lines("Files it may read and change", "/srv/data/output", "Folders and files, one per line.")
    network_access = _select(
        "Network",
        NetworkAccess.choices,
        NetworkAccess.PUBLIC,
        "Packages that npx or uvx install come from the network too.",
        required=False,
    )
    network_hosts = _lines(
        "Hosts",
        "api.example.com",
        "One per line, with a port if you like: api.example.com, *.example.com, 10.0.0.5:5432. Hosts on this machine (localhost:5432) or a private network are reachable only if listed.",
    )
    era = _select("Protocol era", EraChoice.choices, EraChoice.AUTO)
    connection_policy = _select("Connection", ConnectionPolicy.choices, ConnectionPolicy.ALWAYS_ON)
    signs_in_as = _select("Identity", SignsInAs.choices, SignsInAs.SHARED, required=False)
    worker_label = _text(
        "Worker label",
        60,
        "Only workers with this label connect to this server. Leave empty for any worker.",
        mono=True,
    )
    answers_sampling = _switch("Sampling", "The server can request model responses; a person answers them.")
    answers_elicitation = _switch("Elicitation", "The server can ask a person to fill in a form or open a link.")
    recording = _select("Recording", Recording.choices, Recording.FULL, required=False)
    idle_timeout_seconds = _seconds("idle_timeout_seconds", "Idle timeout", 900, "Used by “Close when idle”.")
    connect_timeout_seconds = _seconds("connect_timeout_seconds", "Connect timeout", 30, CONNECT_HELP)
    request_timeout_seconds = _seconds(
        "request_timeout_seconds", "Request timeout", 60, "Maximum wait without an answer or progress."
    )
    total_timeout_seconds = _seconds(
        "total_timeout_seconds", "Total timeout", 1800, "Maximum duration, regardless of progress."
    )
    environment = _select("Environment", Environment.choices, Environment.DEVELOPMENT)
    owner: "forms.ModelChoiceField[Any]" = forms.ModelChoiceField(
        label="Owner",
        queryset=None,
        required=False,
        empty_label="No owner",
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    tags = _text("Tags", 1000, "Separated by commas.")
    notes = forms.CharField(
        label="Notes", required=False, widget=forms.Textarea(attrs={"class": "form-control", "rows": 4})
    )
    proposed = forms.CharField(required=False, widget=forms.HiddenInput)
    uid = forms.CharField(required=False, widget=forms.HiddenInput)
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(
        self,
        data: Any = None,
        *,
        user: Any,
        server: Server | None = None,
        allowing: tuple[str, str] | None = None,
        propose: bool = False,
        read: Registration | None = None,
        **kwargs: Any,
    ) -> None:
        self.server = server
        self._shown_arguments = server.arguments if server else read.arguments if read else []
        self._shown_command = server.command if server else read.command if read else ""
        self.notes_for_user: list[str] = []
        row_prefix = next((prefix for button, prefix in ADD_ROW.items() if data is not None and button in data), "")
        self.adding_row = bool(row_prefix)
        self.proposing = False
        if propose and data is not None and not row_prefix:
            data = self._with_proposal(data)
        data = with_another_row(data, row_prefix) if row_prefix else data
        initial = _initial(server, user) | (_initial_of_read(read) if read else {})
        super().__init__(data, initial=initial | (kwargs.pop("initial", None) or {}), **kwargs)
        cast("forms.ModelChoiceField[Any]", self.fields["owner"]).queryset = _people(server)
        self.values = values.value_rows(data, server, self._blank_kind(), read)
        self.roots = roots.root_rows(data, server or read)
        self.limits = LimitsForm(data, server.limits if server else read.limits if read else {})
        if self.adding_row:
            for part in (self.limits, self.values, self.roots):
                part.clear_errors()
        if self.adding_row or self.proposing:
            self.note_secrets()
        if allowing is not None and data is None:
            self._add_entry(*allowing)

    def _with_proposal(self, data: Any) -> Any:
        """The input, with what a known server needs added once: a person sees it before it takes effect."""
        if data.get("proposed") or any(data.get(name, "").strip() for name in _LINES):
            return data
        command, arguments = data.get("command", "").strip(), data.get("arguments", "").splitlines()
        if not any(line.strip() for line in arguments):
            with suppress(ValidationError):
                command, arguments = validators.split_command_line(command)
        found = proposed(command, [line.strip() for line in arguments if line.strip()])
        if found is None or data.get("url"):
            return data
        self.proposing = True
        data = data.copy()
        data["proposed"] = "1"
        for name in _LINES:
            data[name] = "\n".join(getattr(found, name))
        words = ", ".join((*found.readable_paths, *found.writable_paths, *found.network_hosts))
        self.notes_for_user.append(
            f"This looks like {found.kind}. Access to {words} was filled in below: check it, then register."
        )
        if found.grants_engine:
            self.notes_for_user.append(
                "The socket of a container engine gives control over the whole machine: what the command does with it is "
                "not confined. Register it only if you trust the command line itself."
            )
        return data

    def _add_entry(self, name: str, entry: str) -> None:
        if name not in _LINES or len(entry) > validators.MAX_VALUE_LENGTH or "\n" in entry:
            return
        lines = str(self.initial.get(name, "")).splitlines()
        if entry not in lines:
            self.initial[name] = "\n".join([*lines, entry])
            self.notes_for_user.append(f"{entry} was added to “{self.fields[name].label}”. Save to allow it.")

    @property
    def unconfirmed(self) -> bool:
        """Whether the entered command may wait for a person to confirm an installation."""
        command = str(self["command"].value() or "").strip()
        arguments = str(self["arguments"].value() or "").splitlines()
        if not arguments:
            with suppress(ValidationError):
                command, arguments = validators.split_command_line(command)
        words = [line for line in arguments if line.strip()]
        return readable(command, words) is None and validators.asks_before_installing(command, words)

    def transport_uses(self) -> list[tuple[str, str, str]]:
        """(value, name, when to use it) of each choice."""
        return [(value, label, OF_TRANSPORT[value]) for value, label in _choices(self.fields["transport"])]

    def era_uses(self) -> list[tuple[str, str, str]]:
        return [(value, label, OF_ERA[value]) for value, label in _choices(self.fields["era"])]

    def recording_uses(self) -> list[tuple[str, str, str]]:
        return [(value, label, OF_RECORDING[value]) for value, label in _choices(self.fields["recording"])]

    @property
    def recorded_mebibytes(self) -> str:
        return f"{settings.WIRE_MIB:g}"

    def _blank_kind(self) -> ValueKind:
        stdio = self["transport"].value() == TransportKind.STDIO or (
            not self["url"].value() and self["command"].value()
        )
        return ValueKind.ENVIRONMENT if stdio else ValueKind.HEADER

    def full_clean(self) -> None:
        super().full_clean()
        if self.adding_row:
            self._errors = forms.utils.ErrorDict()

    def is_valid(self) -> bool:
        """Whether the form and all its parts are valid. False while rows are being added."""
        if self.adding_row or self.proposing or not self.is_bound:
            return False
        if super().is_valid() and self.values.is_valid():
            transport = self.cleaned_data["transport"]
            self.values.check_transport(transport)
            if self.server is not None and transport != TransportKind.STDIO:
                before = self.server.url
                if not before or validators.origin(before) != validators.origin(self.cleaned_data["url"]):
                    self.values.refuse_kept()
        if self.refused:
            self.note_secrets()
        return not self.refused

    @cached_property
    def has_new_secret(self) -> bool:
        """Whether a secret was entered: the page does not get it back."""
        return self.is_bound and any(row["secret"].value() and row["value"].value() for row in self.values)

    def note_secrets(self) -> None:
        """Called when the form is shown again instead of being saved."""
        if self.has_new_secret:
            self.notes_for_user.append("Secrets are never sent back to the page. Enter new secrets again.")

    @property
    def refused(self) -> bool:
        """Whether the page has to say what to correct: in its own fields, or in one of its parts."""
        return bool(self.part_errors or self.errors)

    @cached_property
    def part_errors(self) -> list[tuple[str, str, str]]:
        """(id of the field, its name, what is wrong) of headers, variables, roots and limits, for the summary."""
        if self.adding_row or self.proposing or not self.is_bound:
            return []
        found: list[tuple[str, str, str]] = []
        for formset, title, row in (
            (self.values, "Headers and variables", "Header or variable"),
            (self.roots, "Roots", "Root"),
        ):
            found += [("", title, str(error)) for error in formset.non_form_errors()]
            for number, form in formset.judged():
                found += _said_of(form, f"{row} {number}")
        found += _said_of(self.limits)
        return found

    # --- what was entered ----------------------------------------------------------------------------------------
    def clean_name(self) -> str:
        return " ".join(str(self.cleaned_data["name"]).split())

    def clean_slug(self) -> str:
        slug = str(self.cleaned_data["slug"]).lower()
        validators.validate_slug(slug)
        others = Server.objects.filter(slug=slug).exclude(pk=self.server.pk if self.server else 0)
        if slug and others.exists():
            raise ValidationError("This short name is already in use. Choose another one.", code="unique")
        if slug and (bundle := Bundle.objects.filter(slug=slug).first()) is not None:
            raise ValidationError(
                f"The bundle {bundle.name} already uses this short name. Choose another one.", code="unique"
            )
        return slug

    def clean_tags(self) -> list[str]:
        tags = list(dict.fromkeys(tag.strip() for tag in str(self.cleaned_data["tags"]).split(",") if tag.strip()))
        validators.validate_tags(tags)
        return tags

    def clean_worker_label(self) -> str:
        label = str(self.cleaned_data["worker_label"]).strip()
        validators.validate_worker_label(label)
        return label

    def clean_arguments(self) -> list[str]:
        arguments = _arguments(str(self.cleaned_data["arguments"]), self._shown_arguments)
        validators.validate_arguments(arguments)
        return arguments

    def clean_network_access(self) -> str:
        return str(self.cleaned_data["network_access"]) or NetworkAccess.PUBLIC

    def clean_recording(self) -> str:
        return str(self.cleaned_data["recording"]) or (self.server.recording if self.server else Recording.FULL)

    def clean_readable_paths(self) -> list[str]:
        return self._clean_lines("readable_paths")

    def clean_writable_paths(self) -> list[str]:
        return self._clean_lines("writable_paths")

    def clean_network_hosts(self) -> list[str]:
        return [host.lower() for host in self._clean_lines("network_hosts")]

    def _clean_lines(self, field: str) -> list[str]:
        entries = unique_lines(str(self.cleaned_data[field]))
        for entry in entries:
            _LINES[field](entry)
        return entries

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if not data.get("transport"):
            self._choose_transport(data)
        if data.get("transport") == TransportKind.STDIO:
            self._clean_stdio(data)
        elif data.get("transport"):
            self._try("url", validators.url_rule(data["transport"]), data.get("url") or "")
        if (data.get("total_timeout_seconds") or 0) < (data.get("request_timeout_seconds") or 0):
            self.add_error("total_timeout_seconds", "Must be at least as long as the request timeout.")
        return data

    def _choose_transport(self, data: dict[str, Any]) -> None:
        typed = data.get("url") or data.get("command") or ""
        if not typed:
            self.add_error("url", "Enter the server's URL or the command that starts it.")
            return
        suggestion = self._try("command", suggest, typed)
        if suggestion is None:
            return
        data["transport"] = suggestion.transport
        if suggestion.url:
            data["url"] = suggestion.url
        elif not data.get("command"):
            data["command"], data["url"] = typed, ""
        self.notes_for_user.append(f"Detected from your input: {suggestion.reason}")

    def _clean_stdio(self, data: dict[str, Any]) -> None:
        command = data.get("command") or ""
        self._try("command", validators.validate_command, command)
        if data.get("working_directory"):
            self._try("working_directory", validators.validate_working_directory, data["working_directory"])
        is_shown = command == self._shown_command and not self._shown_arguments  # a path with a blank in it
        if " " in command and not data.get("arguments") and not is_shown and "command" not in self.errors:
            split = self._try("command", validators.split_command_line, command)
            if split is not None:
                data["command"], data["arguments"] = split
                self.notes_for_user.append("The command line was split into the command and its arguments.")

    def _try(self, field: str, rule: Any, value: str) -> Any:
        try:
            return rule(value)
        except ValidationError as problem:
            self.add_error(field, problem)
            return None

    # --- to and from the domain ----------------------------------------------------------------------------------
    def registration_data(self) -> dict[str, Any]:
        """What `Registration.of` takes. After is_valid()."""
        data = {name: self.cleaned_data[name] for name in (*_PLAIN, *_LINES, "tags", "arguments")}
        owner = self.cleaned_data["owner"]
        data["signs_in_as"] = data["signs_in_as"] or (self.server.signs_in_as if self.server else SignsInAs.SHARED)
        return data | {
            "transport": TransportKind(self.cleaned_data["transport"]),
            "owner_id": owner.pk if owner else None,
            "values": [row.data_for_registration() for row in self.values.rows()],
            "roots": self.roots.roots(),
            "limits": self.limits.overrides(),
        }

    def refuse(self, problem: ValidationError) -> None:
        """Show what the domain refused at the field that it is about."""
        by_field = problem.error_dict if hasattr(problem, "error_dict") else {"__all__": problem.error_list}
        for name, errors in by_field.items():
            known = name if name in self.fields else None
            self.add_error("owner" if name == "owner_id" else known, list(errors))


def _arguments(text: str, shown: Sequence[str]) -> list[str]:
    """What was entered, one argument per line. `shown`: what the field was filled with. An argument that is empty or
    has several lines, such as a script, cannot be entered here, but one that was shown is kept unchanged."""
    known = [lines_as_posted(one) for one in shown]
    lines = lines_as_posted(text)
    if lines == [line for one in known for line in one]:
        return list(shown)
    several = [(one, argument) for one, argument in zip(known, shown, strict=True) if len(one) > 1]
    arguments: list[str] = []
    at = 0
    while at < len(lines):
        whole = next(((one, argument) for one, argument in several if lines[at : at + len(one)] == one), None)
        if whole is not None:
            arguments.append(whole[1])
        elif lines[at].strip():
            arguments.append(lines[at])
        at += len(whole[0]) if whole is not None else 1
    return arguments


def _initial(server: Server | None, user: Any) -> dict[str, Any]:
    if server is None:
        return {"owner": user.pk if user is not None else None}
    initial = {name: getattr(server, name) for name in _PLAIN}
    return initial | {
        "transport": server.transport,
        "owner": server.owner_id,
        "tags": ", ".join(server.tags),
        "arguments": "\n".join(server.arguments),
        **{name: "\n".join(getattr(server, name)) for name in _LINES},
        "uid": server.uid,
        "version": server.version,
    }


def _initial_of_read(read: Registration) -> dict[str, Any]:
    """Filled in and shown, so that known access counts without being proposed once more."""
    return {name: getattr(read, name) for name in _PLAIN} | {
        "transport": read.transport,
        "tags": ", ".join(read.tags),
        "arguments": "\n".join(read.arguments),
        **{name: "\n".join(getattr(read, name)) for name in _LINES},
        "proposed": "1",
    }


def _choices(field: forms.Field) -> Any:
    return cast("forms.ChoiceField", field).choices


def _people(server: Server | None) -> Any:
    """Active accounts, and the current owner even if inactive."""
    people = get_user_model()._default_manager.filter(is_active=True)
    if server is not None and server.owner_id is not None:
        people |= get_user_model()._default_manager.filter(pk=server.owner_id)
    return people.order_by("username")


def _said_of(form: forms.BaseForm, where: str = "") -> list[tuple[str, str, str]]:
    """(id of the field, its name, what is wrong) of one part. `where`: the row that the form is."""
    found = [("", where, str(error)) for error in form.non_field_errors()]
    for bound in form:
        label = f"{where}, {str(bound.label).lower()}" if where else str(bound.label)
        found += [(bound.id_for_label, label, str(error)) for error in bound.errors]
    return found
