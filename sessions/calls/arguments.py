"""Turns user input (form fields, JSON text or a value) into arguments that match the tool's schema, or into messages
that say why they do not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servers.definitions.versions import digest_of
from servers.schemas import checker, parse
from sessions.enums import ArgumentProblemKind


class Rejected(Exception):
    """The call is not placed. `errors`: JSON pointer into the arguments -> messages. `confirm`: which confirmation is
    missing."""

    def __init__(self, message: str, errors: Mapping[str, list[str]] | None = None, *, confirm: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.errors = dict(errors or {})
        self.confirm = confirm


class NotListed(Rejected):
    """The server does not offer such a tool or prompt, or no longer offers it."""


@dataclass(frozen=True)
class SubmittedArguments:
    """One of `form` (field -> values as posted), `text` (JSON) or `value`. `confirm`: what the person typed.
    `as_task`: run the tool as a task if that is optional. `unchecked`: even with arguments that cannot be checked;
    `anyway`: also with arguments that the tool's schema forbids."""

    form: Mapping[str, list[str]] | None = None
    text: str | None = None
    value: Any = None
    confirm: str | bool = ""
    as_task: bool = False
    unchecked: bool = False
    anyway: bool = False


@dataclass(frozen=True)
class ArgumentProblem:
    """Whether there is a problem with the arguments: `reason` says which, without quoting them."""

    kind: ArgumentProblemKind = ArgumentProblemKind.NONE
    reason: str = ""

    def __bool__(self) -> bool:
        return bool(self.kind)


NO_DOUBT = ArgumentProblem()


def read_arguments(schema: Any, given: SubmittedArguments) -> tuple[Any, ArgumentProblem]:
    """Return the arguments, and any problem with them. Raises Rejected.

    May wait for the schema checker: never call it in an event loop.
    """
    value = _value(schema, given)
    if not isinstance(value, dict):
        raise Rejected("The arguments must be a JSON object.", {"": ["Enter a JSON object: { … }."]})
    verdict = checker.check(schema, value)
    if verdict.state == "invalid" and not given.anyway:
        raise Rejected(_summary(verdict.errors), verdict.errors, confirm="anyway")
    if verdict.state == "invalid":
        return value, ArgumentProblem(ArgumentProblemKind.INVALID, _summary(verdict.errors).rstrip("."))
    return value, ArgumentProblem(
        ArgumentProblemKind.UNCHECKED, verdict.reason
    ) if verdict.state == "unable" else NO_DOUBT


def _value(schema: Any, given: SubmittedArguments) -> Any:
    if given.form is None and given.text is None:
        return given.value
    parsed = _parsed(schema, given)
    if parsed.op is not None:
        raise Rejected("Use the buttons of the form to add or remove fields.")
    if not parsed.ok:
        raise Rejected(_summary(parsed.errors), parsed.errors)
    return parsed.value


def _parsed(schema: Any, given: SubmittedArguments) -> parse.Parsed:
    """The page's form has two modes. In JSON mode, a single field contains everything."""
    if given.form is None:
        return parse.parse_json(given.text or "{}")
    if list(given.form.get("_mode", [])) == ["json"]:
        return parse.parse_json("".join(given.form.get("_json", [])) or "{}")
    if is_outdated(given.form, schema):
        raise Rejected("The tool changed while you filled in the form. Reload the page and check the fields.")
    return parse.parse_form(schema, given.form)


def is_outdated(form: Mapping[str, list[str]], schema: Any) -> bool:
    """Whether the form was built from a different schema: options and branches are posted as their positions in it."""
    made_from = form.get("_schema", [])
    return bool(made_from) and made_from[-1] != digest_of(schema)


def _summary(errors: Mapping[str, list[str]]) -> str:
    count = sum(len(messages) for messages in errors.values())
    return "1 invalid argument." if count == 1 else f"{count} invalid arguments."
