"""The rules for a registration, applied to every source: the command line gets the same messages as the form."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError

from servers import validators
from servers.configuration import Registration, ValueInput
from servers.credentials.binding import NOT_ENCRYPTED, may_carry_credentials
from servers.credentials.references import has_reference
from servers.enums import EraChoice, TransportKind, ValueKind

VALUE_RULES: dict[str, tuple[Callable[[str], None], Callable[[str], None]]] = {
    ValueKind.HEADER: (validators.validate_header_name, validators.validate_header_value),
    ValueKind.ENVIRONMENT: (validators.validate_variable_name, validators.validate_variable_value),
}


def check(registration: Registration) -> None:
    """Raises ValidationError with messages by field."""
    problems: dict[str, list[ValidationError]] = {}
    if not registration.name.strip():
        problems["name"] = [ValidationError("Enter a name.", code="required")]
    for field, rule in _rules(registration):
        _collect(problems, field, rule, getattr(registration, field))
    for field in validators.TIMES:
        _collect(problems, field, partial(validators.validate_seconds, field), getattr(registration, field))
    for value in registration.used_values():
        _collect(problems, "values", _check_value, value)
    seen: set[tuple[str, str]] = set()
    for value in registration.used_values():
        if value.key in seen:
            problem = ValidationError(f"{value.name} is set twice.", code="double")
            problems.setdefault("values", []).append(problem)
        seen.add(value.key)
    if "url" not in problems and registration.transport != TransportKind.STDIO:
        secret = any(value.secret or has_reference(value.text()) for value in registration.used_values())
        if (secret or has_reference(registration.url)) and not may_carry_credentials(registration.url):
            problems["url"] = [ValidationError(NOT_ENCRYPTED, code="not_encrypted")]
    if registration.total_timeout_seconds < registration.request_timeout_seconds:
        problem = ValidationError("Must be at least as long as the request timeout.", code="total")
        problems.setdefault("total_timeout_seconds", []).append(problem)
    if registration.transport == TransportKind.HTTP_SSE and registration.era == EraChoice.MODERN:
        problems["era"] = [ValidationError("HTTP+SSE does not support the modern era. Choose Automatic.", code="era")]
    if problems:
        raise ValidationError(problems)


def _rules(registration: Registration) -> list[tuple[str, Callable[[Any], None]]]:
    rules: list[tuple[str, Callable[[Any], None]]] = [
        ("slug", validators.validate_slug),
        ("tags", validators.validate_tags),
        ("roots", validators.validate_roots),
        ("limits", validators.validate_limits),
        ("worker_label", validators.validate_worker_label),
    ]
    if registration.transport != TransportKind.STDIO:
        return [*rules, ("url", validators.url_rule(registration.transport))]
    rules += [("command", validators.validate_command), ("arguments", validators.validate_arguments)]
    rules += [("readable_paths", validators.validate_paths), ("writable_paths", validators.validate_paths)]
    rules.append(("network_hosts", validators.validate_hosts))
    if registration.working_directory:
        rules.append(("working_directory", validators.validate_working_directory))
    return rules


def _check_value(value: ValueInput) -> None:
    check_name, check_text = VALUE_RULES[value.kind]
    check_name(value.name)
    if value.value is not None:
        check_text(value.text())


def _collect(problems: dict[str, list[ValidationError]], field: str, rule: Callable[[Any], None], value: Any) -> None:
    try:
        rule(value)
    except ValidationError as problem:
        problems.setdefault(field, []).append(problem)
