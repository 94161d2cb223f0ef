"""The inbox forms: an elicitation's fields, from the server's own schema, and an answer in place of a model."""

from functools import cached_property
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.safestring import SafeString

from servers.json import text as json_text
from servers.json.text import JsonProblem
from servers.schemas import render
from servers.schemas.compile import compile_form
from servers.schemas.nodes import JsonNode, Node, NumberNode, ObjectNode, TextNode
from servers.schemas.operations import apply
from servers.schemas.parse import parse_form
from sessions.inbox.answering import SubmittedArguments, Unfit, prefilled, requested_schema
from sessions.inbox.secret_fields import secret_fields


class ElicitationForm:
    """What a server asks for, field by field. Untouched defaults are sent, as the protocol requires.

    Without `data` the form has the server's defaults, with it the person's input. `errors` come from a refused answer.
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
        """A yes-or-no question: there is nothing to fill in."""
        return isinstance(self.node, ObjectNode) and not self._parts

    @property
    def nested(self) -> bool:
        """The specification allows no objects in a form, so an answer with one cannot be sent."""
        return any(node.kind == "object" for node in self._parts)

    @property
    def unsendable(self) -> bool:
        """An object is required, so no answer can be sent."""
        return any(node.kind == "object" and node.required for node in self._parts)

    @cached_property
    def secrets(self) -> list[str]:
        """Fields that seem to ask for a secret, which the specification forbids."""
        return secret_fields(self.schema)

    @property
    def typed(self) -> str:
        """The input as text to copy when it can no longer be sent, in the format of unsent.js."""
        fields = [node for node in self.node.walk() if isinstance(node, TextNode | NumberNode | JsonNode)]
        filled = [node for node in fields if node.text.strip() and not node.secret]
        if len(filled) == 1:
            return filled[0].text
        return "\n".join(f"{node.title or node.key}: {node.text}" for node in filled)

    @property
    def _parts(self) -> list[Node]:
        return list(self.node.nested())


def posted(data: QueryDict) -> dict[str, list[str]]:
    return {name: [str(value) for value in values] for name, values in data.lists()}


def edits(data: QueryDict) -> bool:
    """A structural edit of the form (for example one more list entry), not an answer."""
    return "_op" in data


REASONS = [
    ("", "Not specified"),
    ("endTurn", "endTurn: the response is complete"),
    ("stopSequence", "stopSequence: a stop sequence was reached"),
    ("maxTokens", "maxTokens: the token limit was reached"),
    ("toolUse", "toolUse: the model calls a tool"),
]
#: the fields that show the domain's errors about a part of the answer
_FIELDS = {"/content": "text", "/model": "model"}


class SamplingForm(forms.Form):
    """The answer that a model would have given. Nothing is prefilled."""

    text = forms.CharField(
        label="Answer",
        max_length=200_000,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8, "class": "answer-text"}),
    )
    as_json = forms.BooleanField(
        label="Answer is JSON: a content block, or a list of them if the request offers tools", required=False
    )
    model = forms.CharField(
        label="Model",
        max_length=200,
        help_text="Name of the person or model that answers. The server sees it.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "person or model name"}),
    )
    reason = forms.ChoiceField(label="Stop reason", choices=REASONS, required=False)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("as_json") and "text" in cleaned:
            try:
                cleaned["content"] = json_text.loads(cleaned["text"])
            except JsonProblem as problem:
                self.add_error("text", str(problem))
        return cleaned

    @property
    def typed(self) -> str:
        """The answer as text to copy if it can no longer be sent."""
        return str(self.data.get("text", "")).replace("\r\n", "\n")

    def given(self) -> SubmittedArguments:
        """The answer to send. Requires a valid form."""
        data = self.cleaned_data
        content = data["content"] if data["as_json"] else data["text"].replace("\r\n", "\n")
        return SubmittedArguments(value={"content": content, "model": data["model"], "stopReason": data["reason"]})

    def refuse(self, problem: Unfit) -> None:
        """Show the domain's errors next to the fields that they concern."""
        for pointer, sentences in problem.errors.items():
            for sentence in sentences:
                self.add_error(_FIELDS.get(pointer), sentence)
        if not problem.errors:
            self.add_error(None, problem.message)
