"""The forms of pages about servers and calls. A tool's arguments come from its own JSON Schema (see
servers/schemas/)."""

from base64 import urlsafe_b64decode
from functools import cached_property
from typing import Any

from django import forms
from django.http import QueryDict
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from servers.definitions.versions import body_of, digest_of
from servers.enums import Environment
from servers.json import text as json_text
from servers.kit.filters import Ignored, ignored_of
from servers.models import Definition
from servers.schemas import checker, leaves, render
from servers.schemas.compile import compile_form
from servers.schemas.input_schema import input_schema_of
from servers.schemas.operations import apply
from servers.schemas.parse import Parsed, parse_form, parse_json
from servers.schemas.secrets import holds_secret
from servers.schemas.values import ABSENT, Draft, Unread, loose
from sessions.calls.arguments import is_outdated
from sessions.calls.prefilling import Prefill
from sessions.mcp.core.tasks import offer_of, support_of
from sessions.mcp.core.versions import REVISIONS
from sessions.models import McpSession
from sessions.overview import server_list, server_page

SHOWN = [
    ("active", "Active"),
    ("enabled", "Enabled"),
    ("disabled", "Disabled"),
    ("archived", "Archived"),
    ("all", "All"),
]
VIEWS = [("", "Table"), ("cards", "Cards")]


def _sorts() -> list[tuple[str, str]]:
    """Each order in both directions; the more useful one first."""
    found: list[tuple[str, str]] = []
    for name, words in server_list.SORTS.items():
        ways = [(name, words), (f"-{name}", f"{words}, descending")]
        found += reversed(ways) if name in server_list.DESCENDING else ways
    return found


class ServerListFilter(forms.Form):
    """Filters, order and view are in the URL. An unknown value does not filter, and the page says so."""

    text = forms.CharField(
        required=False,
        max_length=200,
        widget=forms.TextInput(
            attrs={
                "class": "form-control",
                "type": "search",
                "placeholder": "Name, tag, URL or command",
                "data-shortcut-filter": "",
            }
        ),
    )
    environment = forms.ChoiceField(
        required=False,
        choices=[("", "All environments"), *Environment.choices],
        widget=forms.Select(attrs={"class": "form-select fit"}),
    )
    state = forms.ChoiceField(
        required=False,
        choices=[("", "Any state"), *server_list.STATES.items()],
        widget=forms.Select(attrs={"class": "form-select fit"}),
    )
    show = forms.ChoiceField(required=False, choices=SHOWN, widget=forms.Select(attrs={"class": "form-select fit"}))
    sort = forms.ChoiceField(required=False, choices=_sorts, widget=forms.Select(attrs={"class": "form-select fit"}))
    view = forms.ChoiceField(required=False, choices=VIEWS, widget=forms.HiddenInput())

    def criteria(self) -> dict[str, str]:
        """What the list shows, without its order and view."""
        self.is_valid()
        found = {name: str(self.cleaned_data[name]) for name in self._filters() if self.cleaned_data.get(name)}
        return {"show": "active"} | found

    def _filters(self) -> list[str]:
        return [name for name in self.fields if name not in ("sort", "view")]

    def active(self) -> bool:
        return self.criteria() != {"show": "active"}

    @property
    def order(self) -> str:
        self.is_valid()
        return str(self.cleaned_data.get("sort") or "name")

    @property
    def cards(self) -> bool:
        self.is_valid()
        return self.cleaned_data.get("view") == "cards"

    def ignored(self) -> list[Ignored]:
        return ignored_of(self)


class ToolForm:
    """The form of one tool in one of two modes: fields generated from its schema, or the arguments as JSON.

    Unposted, `?args=` (base64url JSON) or `prefill` prefills it and never runs anything. Posted, it is the form again after a
    structural edit (`_op`), a switch of mode (`_switch`) or a check (`_validate`).
    """

    def __init__(
        self, definition: Definition, data: QueryDict, *, posted: bool, prefill: Prefill | None = None
    ) -> None:
        self.prefill = prefill
        self._data = data
        self._posted = posted
        self.tool = body_of(definition)
        self.name = definition.key
        self.title = definition.title or definition.key
        self.description = server_page.beginning(definition.description)
        self.hints = server_page.hints(self.tool)
        self.destructive = "destructive" in self.hints
        self.has_output_schema = "outputSchema" in self.tool
        self._identity = definition.identity_id
        self.schema: Any = input_schema_of(self.tool)

    @cached_property
    def tasks(self) -> str:
        """ "required": the tool runs only as a task; "optional": the caller may choose. Empty if it never does, and
        if the server decides by itself (2026-07-28)."""
        support = support_of(self.tool)
        if support == "forbidden":
            return ""
        session = McpSession.objects.filter(identity_id=self._identity).only("revision", "server_capabilities").first()
        revision = REVISIONS.get(session.revision) if session else None
        if session is None or revision is None or not revision.core_tasks:
            return ""
        return support if offer_of(session.server_capabilities, {}, revision).call else ""

    @property
    def as_task(self) -> bool:
        if not self._posted:
            return self.prefill is not None and self.prefill.as_task
        return "_task" in self._data

    @cached_property
    def mode(self) -> str:
        if self.stays_in_form:
            return "form"
        mode = self._data.get("_switch") or self._data.get("_mode") or self._data.get("mode") or "form"
        return "json" if mode == "json" else "form"

    @cached_property
    def stays_in_form(self) -> bool:
        """Switching to JSON would lose input that is not a valid value yet."""
        switched = self._posted and self._data.get("_switch") == "json" and self._data.get("_mode") != "json"
        return switched and bool(self.parsed.unreadable) and not _is_text(self.parsed.draft)

    @cached_property
    def parsed(self) -> Parsed:
        if not self._posted and self.prefill is not None:
            return Parsed(ABSENT, draft=ABSENT if self.prefill.value is None else self.prefill.value)
        if not self._posted:
            return Parsed(ABSENT, draft=_prefilled(self._data.get("args", "")))
        if self._data.get("_mode") == "json":
            return parse_json(self._data.get("_json", "") or "{}")
        return parse_form(self.schema, dict(self._data.lists()))

    @property
    def schema_digest(self) -> str:
        return digest_of(self.schema)

    @property
    def outdated(self) -> bool:
        """The posted form was filled in before the tool changed, so its options or branches may mean others now."""
        in_fields = self._posted and self._data.get("_mode") != "json"
        return in_fields and is_outdated(dict(self._data.lists()), self.schema)

    @cached_property
    def verdict(self) -> checker.Validity | None:
        """Only on request, and only if the input could be parsed."""
        if self._posted and "_validate" in self._data and self.parsed.ok:
            return checker.check(self.schema, self.parsed.value)
        return None

    @cached_property
    def errors(self) -> dict[str, list[str]]:
        """None after a switch of mode or an edit: incomplete input is not an error yet."""
        if self.stays_in_form:
            return self.parsed.unreadable
        if "_validate" not in self._data:
            return {}
        return self.parsed.errors if self.verdict is None else self.verdict.errors

    @property
    def restored(self) -> bool:
        """Filled from a draft that the browser stored; the page says so until it is cleared."""
        return self._posted and "_restored" in self._data

    @cached_property
    def has_secrets(self) -> bool:
        return holds_secret(self.schema)

    @property
    def secret_paths(self) -> str:
        """The paths of the fields that a draft leaves out."""
        return json_text.dumps([node.path for node in self.node.walk() if node.secret]) if self.has_secrets else ""

    @property
    def unchecked(self) -> bool:
        return self.verdict is not None and self.verdict.unable

    @property
    def invalid(self) -> bool:
        """Readable, but forbidden by the schema: it can be sent anyway."""
        return self.verdict is not None and self.verdict.state == "invalid"

    @property
    def notice(self) -> str:
        if self.stays_in_form:
            return "Correct these values before you switch to JSON, which cannot contain them."
        if self.mode == "form" and self._posted and self._data.get("_switch") == "form" and not self.parsed.ok:
            return "Invalid JSON: correct it here or switch back."
        return self.verdict.reason if self.verdict is not None and self.verdict.unable else ""

    @cached_property
    def node(self) -> Any:
        draft = self.parsed.draft
        if self.parsed.op is not None:
            draft = apply(self.parsed.op, self.schema, draft)
        return compile_form(self.schema, draft, self.errors)

    @property
    def error_summary(self) -> SafeString:
        return render.render_errors(self.node) if self.mode == "form" and self.errors else SafeString("")

    @property
    def fields(self) -> SafeString:
        if self.mode == "form":
            return render.render_form(self.node)
        context = {
            "text": self._json_text(),
            "secret": self.has_secrets,
            "errors": [
                f"{pointer}: {line}" if pointer else line for pointer, lines in self.errors.items() for line in lines
            ],
        }
        return render_to_string("catalog/_json_field.html", context)

    def _json_text(self) -> str:
        if self._posted and self._data.get("_mode") == "json":
            return str(self._data.get("_json", ""))
        draft = self.parsed.draft
        if _is_text(draft):
            return str(draft.text)
        value = loose(draft)
        return leaves.json_text({} if value is ABSENT else value)


def _is_text(draft: Draft) -> bool:
    """Whether the arguments are a text that is not JSON."""
    return isinstance(draft, Unread) and draft.raw


def _prefilled(word: str) -> Any:
    """The value of `?args=`; an unreadable one is ignored."""
    try:
        return json_text.loads(urlsafe_b64decode(word + "=" * (-len(word) % 4)).decode()) if word else ABSENT
    except ValueError:
        return ABSENT
