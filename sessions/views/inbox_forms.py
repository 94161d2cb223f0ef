"""The forms of the inbox: fields of an elicitation by the server's own schema, and the answer of a model."""

import re
from functools import cached_property
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.safestring import SafeString

from sessions.domain.inbox import Given, Unfit, prefilled, requested_schema
from sessions.schemas import jsontext, render
from sessions.schemas.compile import compile_form
from sessions.schemas.jsontext import JsonProblem
from sessions.schemas.nodes import Node, ObjectNode
from sessions.schemas.operations import apply
from sessions.schemas.parse import parse_form

_SECRET = re.compile(
    r"(?i)pass(?:word|wd|phrase|code)|secret|token|api[ _-]?key|private[ _-]?key|credential|\bpin\b|\bcvv\b"
)


class ElicitationForm:
    """What a server asks for, field by field. Untouched defaults are sent, as the protocol wants it.

    Without `data` it is as the server filled it in; with it, as the person left it. `errors` come from the answer that
    was refused.
    """

    def __init__(
        self, params: dict[str, Any], data: QueryDict | None = None, errors: dict[str, list[str]] | None = None
    ) -> None:
        self.schema = requested_schema(params)
        self._data = data
        self._errors = errors or {}

    @cached_property
    def node(self) -> Node:
        if self._data is None:
            return compile_form(self.schema, prefilled(self.schema))
        parsed = parse_form(self.schema, posted(self._data))
        draft = parsed.draft if parsed.op is None else apply(parsed.op, self.schema, parsed.draft)
        return compile_form(self.schema, draft, self._errors)

    @property
    def fields(self) -> SafeString:
        return render.render_form(self.node, id_prefix="answer")

    @property
    def error_summary(self) -> SafeString:
        return render.render_errors(self.node, id_prefix="answer") if self._errors else SafeString("")

    @property
    def empty(self) -> bool:
        """A question of yes or no: there is nothing to fill in."""
        return isinstance(self.node, ObjectNode) and not self._parts

    @property
    def nested(self) -> bool:
        """The specification allows no objects in a form, so an answer with one cannot be sent."""
        return any(node.kind == "object" for node in self._parts)

    @property
    def secrets(self) -> list[str]:
        """Fields that look as if they ask for a secret, which the specification forbids."""
        named = [
            node.title or node.key for node in self._parts if _SECRET.search(f"{node.key} {node.title} {node.help}")
        ]
        return [name[:80] for name in named[:10]]

    @property
    def _parts(self) -> list[Node]:
        return list(self.node.nested())


def posted(data: QueryDict) -> dict[str, list[str]]:
    return {name: [str(value) for value in values] for name, values in data.lists()}


def edits(data: QueryDict) -> bool:
    """A structural edit of the form (one more entry of a list), not an answer."""
    return "_op" in data


REASONS = [
    ("", "Not told"),
    ("endTurn", "endTurn: the answer is complete"),
    ("stopSequence", "stopSequence: a stop sequence was met"),
    ("maxTokens", "maxTokens: the limit was reached"),
    ("toolUse", "toolUse: a tool is to be called"),
]
#: where the domain's words about a part of the answer are shown
_FIELDS = {"/content": "text", "/model": "model"}


class SamplingForm(forms.Form):
    """What a model would have answered. Nothing is filled in beforehand."""

    text = forms.CharField(
        label="Answer",
        max_length=200_000,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8, "class": "answer-text"}),
    )
    as_json = forms.BooleanField(label="The answer is JSON: one content block, or a list of them", required=False)
    model = forms.CharField(
        label="Model",
        max_length=200,
        help_text="Who or which model answers. The server sees it.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "a person, or a model's name"}),
    )
    reason = forms.ChoiceField(label="Stop reason", choices=REASONS, required=False)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("as_json") and "text" in cleaned:
            try:
                cleaned["content"] = jsontext.loads(cleaned["text"])
            except JsonProblem as problem:
                self.add_error("text", str(problem))
        return cleaned

    def given(self) -> Given:
        """Of a valid form."""
        data = self.cleaned_data
        content = data["content"] if data["as_json"] else data["text"].replace("\r\n", "\n")
        return Given(value={"content": content, "model": data["model"], "stopReason": data["reason"]})

    def refuse(self, problem: Unfit) -> None:
        """Shows the domain's words at the fields they are about."""
        for pointer, sentences in problem.errors.items():
            for sentence in sentences:
                self.add_error(_FIELDS.get(pointer), sentence)
        if not problem.errors:
            self.add_error(None, problem.message)
