"""The form of a URI template: its variables as fields, and the URI that their values produce."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from servers.schemas import uri_template
from servers.schemas.uri_template import BrokenTemplate, Value, Variable
from sessions.calls.operations import TARGET_BYTES
from sessions.catalog.prompts import Field


@dataclass(frozen=True)
class TemplateForm:
    """`uri` is empty if a value is missing or the template is invalid; `problem` says why no URI can be built."""

    fields: list[Field]
    uri: str = ""
    problem: str = ""

    @property
    def errors(self) -> dict[str, str]:
        return {field.name: field.error for field in self.fields if field.error}


def template_form(template: str, values: Mapping[str, str], *, checked: bool) -> TemplateForm:
    """`values` are as typed, keyed by variable name. `checked`: an empty required field is an error."""
    try:
        variables = uri_template.variables(template)
    except BrokenTemplate as problem:
        return TemplateForm([], problem=f"Invalid URI template. {problem}")
    fields = [_field(variable, values.get(variable.name, ""), checked) for variable in variables]
    if any(field.required and not field.value for field in fields):
        return TemplateForm(fields)
    try:
        uri = uri_template.expand(template, {field.name: _value(field) for field in fields if field.value})
    except ValueError as problem:
        return TemplateForm(fields, problem=str(problem))
    if len(uri.encode("utf-8", "replace")) > TARGET_BYTES:
        return TemplateForm(
            fields, problem=f"The URI would be longer than {TARGET_BYTES:,} bytes, which is a fixed limit."
        )
    return TemplateForm(fields, uri)


def _field(variable: Variable, value: str, checked: bool) -> Field:
    required = not variable.may_be_absent
    missing = checked and required and not value
    return Field(
        name=variable.name,
        value=value,
        description=f"Only its first {variable.prefix} characters are used." if variable.prefix else "",
        required=required,
        many=variable.explode,
        error="Enter a value." if missing else "",
    )


def _value(field: Field) -> Value:
    return field.value.splitlines() if field.many else field.value


_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_QUERY = re.compile(r"\{[?&]([\w,.-]+)\}$")


def values_in(template: str, uri: str) -> dict[str, str] | None:
    """The values from which `template` produces `uri`; None if it cannot, or if its expressions are more than plain
    names and a query at the end. Each value extends to the next literal text, so no pattern from a server is ever
    matched."""
    path, values = uri, dict[str, str]()
    query = _QUERY.search(template)
    if query is not None:
        path, _, given = uri.partition("?" if query[0][1] == "?" else "&")
        values = {
            name: value for name, value in parse_qsl(given, keep_blank_values=True) if name in query[1].split(",")
        }
    parts = _EXPRESSION.split(template[: query.start()] if query else template)
    literals, names = parts[::2], parts[1::2]
    if not path.startswith(literals[0]):
        return None
    at = len(literals[0])
    for name, literal in zip(names, literals[1:], strict=True):
        end = path.find(literal, at) if literal else len(path)
        if end < 0:
            return None
        values[name.removeprefix("+")] = unquote(path[at:end])
        at = end + len(literal)
    try:
        made = uri_template.expand(template, values)
    except ValueError:
        return None
    return values if made == uri else None
