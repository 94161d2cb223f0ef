"""Arguments without a JSON Schema: those of a prompt, a resource read or a completion."""

import re
from collections.abc import Mapping
from typing import Any

from servers.json import text as json_text
from servers.schemas.pointer import escape
from sessions.calls.arguments import Rejected, SubmittedArguments

FIELD = "arg."
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


# --- resources -------------------------------------------------------------------------------------------------------
def check_uri(uri: str) -> None:
    """Raises Rejected. We only check that it is one line of text; scheme and parts are up to the server."""
    if _CONTROL.search(uri):
        words = "A URI cannot contain line breaks or other control characters."
        raise Rejected(words, {"/uri": [words]})


def of_resource(uri: str, given: SubmittedArguments) -> dict[str, Any]:
    """Return only the URI. The arguments of a repeated call must contain the same URI."""
    if _object(given) not in ({}, {"uri": uri}):
        raise Rejected("Reading a resource takes only its URI.")
    return {"uri": uri}


# --- prompts ---------------------------------------------------------------------------------------------------------
def prompt_fields(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arguments that the server declared, in its order. Malformed entries are omitted."""
    listed = definition.get("arguments")
    named = [field for field in listed if isinstance(field, dict)] if isinstance(listed, list) else []
    fields = {field["name"]: field for field in named if isinstance(field.get("name"), str) and field["name"]}
    return list(fields.values())


def of_prompt(definition: Mapping[str, Any], given: SubmittedArguments) -> dict[str, Any]:
    """Check that required arguments are present. Arguments that the server did not declare are passed on."""
    values = _object(given)
    errors = {f"/{escape(name)}": ["Must be text."] for name in values if not isinstance(values[name], str)}
    for field in prompt_fields(definition):
        if field.get("required") is True and field["name"] not in values:
            errors[f"/{escape(field['name'])}"] = ["Enter a value."]
    if errors:
        count = f"{len(errors)} invalid arguments" if len(errors) > 1 else "1 invalid argument"
        raise Rejected(f"{count}.", errors)
    return values


# --- completion ------------------------------------------------------------------------------------------------------
def of_completion(given: SubmittedArguments) -> dict[str, Any]:
    """`argument` {name, value} and, if the form has more fields, `context` {arguments}."""
    values = _object(given)
    argument = _texts(values.get("argument"))
    if set(argument) != {"name", "value"} or not argument["name"]:
        raise Rejected("A completion needs one argument: its name and its text so far.")
    context = values.get("context")
    known = _texts(context.get("arguments", {})) if isinstance(context, dict) else {}
    return {"argument": argument} | ({"context": {"arguments": known}} if known else {})


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise Rejected("The arguments of a completion must be text.")
    return value


# --- user input ------------------------------------------------------------------------------------------------------
def typed(data: Any) -> dict[str, str]:
    """The values of the fields `arg.<name>`, by name."""
    return {name.removeprefix(FIELD): value for name, value in data.items() if name.startswith(FIELD)}


def _object(given: SubmittedArguments) -> dict[str, Any]:
    """Form fields are texts by name. Empty ones count as absent; a browser's line breaks become \n."""
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
        return json_text.loads(text or "{}")
    except json_text.JsonProblem as problem:
        raise Rejected(str(problem), {"": [str(problem)]}) from problem
