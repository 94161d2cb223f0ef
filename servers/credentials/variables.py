"""Which variables of a stdio server a credential may fill. One rule for every entry point, and for the launch itself.

A variable is part of what a server runs, so the registration names those that are left to credentials: its secret
variables, with or without a value of their own, and those whose value is a reference. A person who may register commands
writes them. No credential fills a variable that decides what runs, no matter who stored it and what the registration says.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from django.core.exceptions import ValidationError

from servers.audit.acts import Trail
from servers.audit.record import ServerRef
from servers.configuration import Registration, ValueInput
from servers.credentials import references
from servers.enums import AuditAction, CredentialKind, TransportKind, ValueKind
from servers.models import Credential, Server
from servers.secret import Secret
from servers.validators import effect_on_execution, looks_secret, validate_variable_name

#: what a token consists of (RFC 6750 section 2.1, and what issuers use in addition): nothing that is read as code
_WORD = r"[A-Za-z0-9._~+/=:@%,][A-Za-z0-9._~+/=:@%,-]*"
_DATA = re.compile(_WORD)
_CREDENTIALS = re.compile(rf"(?:[A-Za-z]+ )?{_WORD}")  # in a header, with the scheme
_OPTION = re.compile(r"--[A-Za-z][A-Za-z0-9_-]*")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*: ?(?:[A-Za-z]+ )?")
_HEADER_OPTIONS = ("--header", "-H")


def fillable(source: Server | Registration) -> frozenset[str]:
    """The variables that the registration leaves to credentials."""
    if isinstance(source, Server):
        rows = [(row.kind, row.name, row.secret, row.plain) for row in source.values.all()]
    else:
        rows = [(str(one.kind), one.name, one.secret, "" if one.secret else one.text()) for one in source.values]
    return frozenset(
        name
        for kind, name, secret, plain in rows
        if kind == ValueKind.ENVIRONMENT and (secret or references.has_reference(plain))
    )


def execution_refusal(variable: str) -> str:
    """Why no credential may hold this variable; empty if one may."""
    try:
        validate_variable_name(variable)
    except ValidationError as problem:
        return " ".join(problem.messages)
    if not (effect := effect_on_execution(variable)):
        return ""
    return (
        f"A credential cannot set {variable}: it {effect}, so it is part of the command. A person with the "
        "“Register commands” permission can set it as a variable in the server's Settings."
    )


def refusal(source: Server | Registration, variable: str) -> str:
    """Why a credential may not fill this variable of the server; empty if it may."""
    if words := execution_refusal(variable):
        return words
    names = fillable(source)
    if variable in names:
        return ""
    declared = (
        f"Credentials can fill {', '.join(sorted(names))}." if names else "Credentials can fill none of its variables."
    )
    return (
        f"A credential cannot fill {variable} on {source.name}. {declared} A person with the "
        f"“Register commands” permission can add {variable} as a secret variable in the server's Settings."
    )


def with_declared(data: Registration, credentials: Iterable[Credential]) -> Registration:
    """A registration that is saved together with credentials leaves their variables to them. Its entry point has
    already checked the permission to register commands."""
    if data.transport != TransportKind.STDIO:
        return data
    taken = {value.name for value in data.values if value.kind == ValueKind.ENVIRONMENT}
    names = [one.details.get("variable", "") for one in credentials if one.kind == CredentialKind.ENVIRONMENT]
    missing = [name for name in dict.fromkeys(names) if name not in taken and not execution_refusal(name)]
    declared = [ValueInput(ValueKind.ENVIRONMENT, name, secret=True, value=None, needed=True) for name in missing]
    return replace(data, values=[*data.values, *declared])


def declare(trail: Trail, server: Server, variable: str) -> None:
    """Runs in the transaction of a verb that has checked the permission to register commands; `server` is locked. Does
    nothing if the name is taken."""
    if execution_refusal(variable) or server.values.filter(kind=ValueKind.ENVIRONMENT, name=variable).exists():
        return
    server.values.create(kind=ValueKind.ENVIRONMENT, name=variable, secret=True)
    server.version += 1  # a form that was opened earlier would remove the variable again
    server.save(update_fields=["version", "updated_at"])
    change = {f"environment {variable}": {"before": "absent", "after": "needed"}}
    trail.note(AuditAction.SERVER_CHANGE, ServerRef.of(server), server.name, {"changes": change})


def require_fillable(source: Server | Registration, variable: str) -> None:
    """Raises ValidationError."""
    if words := refusal(source, variable):
        raise ValidationError(words, code="variable_not_declared")


def command_refusal(arguments: Iterable[str], working_directory: str, filled: Mapping[str, Secret | str]) -> str:
    """Why values that credentials filled may not be used where the command line refers to them; empty if they may.

    They are allowed only where a secret is expected (`--token ${X}`, `--token=${X}`, `--header "Authorization: Bearer
    ${X}"`), and must look like one, so that a value is neither an option, nor a script, nor the path of one.
    """
    before = ""
    for number, argument in enumerate(arguments, 1):
        for name in _referred(argument, filled):
            shape = _shape(before, argument, name)
            if shape is None:
                return (
                    f"Argument {number} refers to {name}, which a credential fills. Such a value is allowed only after a long "
                    "option for a secret, such as --token or --header, so that it cannot become part of the command. A person "
                    "with the “Register commands” permission can change the argument or enter the value in the "
                    "server's Settings."
                )
            value = filled[name]
            if not shape.fullmatch(value.reveal() if isinstance(value, Secret) else value):
                return (
                    f"Argument {number} refers to {name}, and the credential's value has characters that could be read as code: "
                    "only letters, digits and . _ ~ + / = : @ % , - are allowed there, and no - at the beginning. Replace the value, or have "
                    "the server read the variable itself."
                )
        before = argument
    if names := _referred(working_directory, filled):
        return (
            f"The working directory refers to {names[0]}, which a credential fills. It decides what runs, so only a person "
            "with the “Register commands” permission can set it, in the server's Settings."
        )
    return ""


def _referred(text: str, filled: Mapping[str, Secret | str]) -> list[str]:
    return [name for name in references.names(text) if name in filled]


def _shape(before: str, argument: str, name: str) -> re.Pattern[str] | None:
    """What the value must look like in this place; None if it is not allowed there."""
    prefix, _, rest = argument.partition(f"${{{name}}}")
    if rest:
        return None
    option = before if not prefix else prefix.removesuffix("=") if prefix.endswith("=") else ""
    if _OPTION.fullmatch(option) and looks_secret(option):
        return _DATA
    return _CREDENTIALS if before in _HEADER_OPTIONS and _HEADER.fullmatch(prefix) else None
