"""Arguments that no JSON Schema describes: of a prompt, of the reading of a resource, of a completion."""

import re
from collections.abc import Mapping
from typing import Any

from sessions.domain.arguments import Given, Rejected
from sessions.schemas import jsontext
from sessions.schemas.pointer import escape

FIELD = "arg."
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


# --- resources -------------------------------------------------------------------------------------------------------
def check_uri(uri: str) -> None:
    """Raises Rejected. Its scheme and its parts are the server's affair; that it is one line of text is ours."""
    if _CONTROL.search(uri):
        words = "A URI holds no line breaks and no other control characters."
        raise Rejected(words, {"/uri": [words]})


def of_resource(uri: str, given: Given) -> dict[str, Any]:
    """The URI alone: what a repetition brings along has to say the same."""
    if _object(given) not in ({}, {"uri": uri}):
        raise Rejected("Reading a resource takes its URI and nothing else.")
    return {"uri": uri}


# --- prompts ---------------------------------------------------------------------------------------------------------
def prompt_fields(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arguments that the server described, in its order; whatever else stands in that list is left out."""
    listed = definition.get("arguments")
    named = [field for field in listed if isinstance(field, dict)] if isinstance(listed, list) else []
    fields = {field["name"]: field for field in named if isinstance(field.get("name"), str) and field["name"]}
    return list(fields.values())


def of_prompt(definition: Mapping[str, Any], given: Given) -> dict[str, Any]:
    """An argument that the server did not name is its own affair; one that it wants is asked for here."""
    values = _object(given)
    errors = {f"/{escape(name)}": ["This has to be text."] for name in values if not isinstance(values[name], str)}
    for field in prompt_fields(definition):
        if field.get("required") is True and field["name"] not in values:
            errors[f"/{escape(field['name'])}"] = ["Enter a value."]
    if errors:
        count = f"{len(errors)} arguments need" if len(errors) > 1 else "One argument needs"
        raise Rejected(f"{count} another look.", errors)
    return values


# --- completion ------------------------------------------------------------------------------------------------------
def of_completion(given: Given) -> dict[str, Any]:
    """`argument` {name, value} and, where the form has more, `context` {arguments}."""
    values = _object(given)
    argument = _texts(values.get("argument"))
    if set(argument) != {"name", "value"} or not argument["name"]:
        raise Rejected("A completion is asked for one argument: its name and what is typed so far.")
    context = values.get("context")
    known = _texts(context.get("arguments", {})) if isinstance(context, dict) else {}
    return {"argument": argument} | ({"context": {"arguments": known}} if known else {})


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise Rejected("The arguments of a completion are texts.")
    return value


# --- what a door was given -------------------------------------------------------------------------------------------
def _object(given: Given) -> dict[str, Any]:
    """Fields of a form are texts by name, an empty one counts as not given; a browser's line breaks become \\n."""
    if given.form is not None:
        return {
            name.removeprefix(FIELD): values[-1].replace("\r\n", "\n")
            for name, values in given.form.items()
            if name.startswith(FIELD) and values and values[-1]
        }
    value = _parsed(given.text) if given.text is not None else given.value
    if value is not None and not isinstance(value, dict):
        raise Rejected("The arguments must be a JSON object.", {"": ["Enter a JSON object: { … }."]})
    return value or {}


def _parsed(text: str) -> Any:
    try:
        return jsontext.loads(text or "{}")
    except jsontext.JsonProblem as problem:
        raise Rejected(str(problem), {"": [str(problem)]}) from problem
